#!/usr/bin/env bash
# Builds the simulated CUDA driver into .cache/cudasim. Put that folder on
# LD_LIBRARY_PATH and every CUDA path of the repository runs without a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
cxx=${CXX:-g++}
command -v "$cxx" >/dev/null || { echo "skipped: the simulated driver needs $cxx, which is not installed"; exit 3; }
out=.cache/cudasim
here=streams/cudasim/src
mkdir -p "$out/missing"
stamp=$(cat scripts/cudasim.sh $here/* $(git ls-files -co --exclude-standard '*.cu') | sha256sum)
[ "$(cat $out/stamp 2>/dev/null)" = "$stamp" ] && exit 0
# Fused multiply-adds as instructions where there are any; as library calls otherwise.
fma=$(grep -qw fma /proc/cpuinfo 2>/dev/null && [ "$(uname -m)" = x86_64 ] && echo -mfma || true)
flags="-std=c++17 -O2 -ffp-contract=off $fma -fPIC -pthread -Wall -Wextra -fvisibility=hidden -I $here"
objects=()
n=0
for source in $here/driver.cc $here/fiber.cc $(git ls-files -co --exclude-standard '*.cu'); do
	n=$((n + 1))
	$cxx $flags -x c++ -c -o "$out/$n.o" "$source"
	objects+=("$out/$n.o")
done
export_all="{ global: cu*; cudasim_*; local: *; };"
link() { echo "$3" >"$out/version.map"; $cxx -shared -pthread -Wl,--version-script="$out/version.map" -Wl,-soname,"$(basename "$1")" -o "$1" $2; }
link $out/libcuda.so.1 "${objects[*]}" "$export_all"
# A driver that lacks one function, as older ones do.
link $out/missing/libcuda.so.1 "${objects[*]}" "{ global: cuI*; cuD*; cuC*; cuM*; cuS*; cuE*; cuG*; cuLaunchKernel; local: *; };"
for library in $here/lib*.cc; do
	[ -e "$library" ] || continue
	name=$(basename "$library" .cc)
	soname=$(sed -n 's/^\/\/ soname //p' "$library")
	$cxx $flags -shared -Wl,-soname,"$soname" -o "$out/$soname" "$library" $out/libcuda.so.1
done
rm -f $out/*.o $out/version.map
echo "$stamp" >$out/stamp
echo "$out is built: LD_LIBRARY_PATH=$PWD/$out"
