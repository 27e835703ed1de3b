#!/usr/bin/env bash
# Proves the CUDA paths on this machine; see scripts/gpu-check.sh. It needs bash and
# the driver, nothing else; PyTorch, where it is, is measured too. Every step has its
# time and prints a line; the table in gpu-check.txt beside this script grows with
# them, so that it holds what was done also when a step fails or the script is stopped.
set -uo pipefail
cd "$(dirname "$0")"
export ASTERIA_REQUIRE_GPU=1 ASTERIA_GOLDEN_OPTIM=$PWD/golden
slow=${GPU_CHECK_SLOW:-1} # factor on all times, for a dry run on a busy machine
table=$PWD/gpu-check.txt
logs=$PWD/logs
python=$(command -v python3 || true)
failed=0
mkdir -p "$logs"
: >"$table"

say() { printf '%s\n' "$1" | tee -a "$table"; }
row() { say "$(printf '%-44s %s' "$1" "$2")"; }
# limited SECONDS COMMAND...: with timeout(1) where there is one.
limited() {
	local seconds=$(($1 * slow))
	shift
	if command -v timeout >/dev/null; then
		timeout -k 5 "$seconds" "$@"
		return
	fi
	"$@" &
	local pid=$! waited=0
	while kill -0 $pid 2>/dev/null; do
		[ $waited -lt $seconds ] || { kill -9 $pid; wait $pid 2>/dev/null; return 124; }
		sleep 1
		waited=$((waited + 1))
	done
	wait $pid
}
count() { # how many lines of a file hold a text
	local n=0 line
	while IFS= read -r line; do [[ $line == *"$2"* ]] && n=$((n + 1)); done <"$1"
	echo $n
}
check() { # name, seconds, command...
	local name=$1 seconds=$2 start=$SECONDS rc=0 log=$logs/${1//[^a-z0-9]/-}.log
	shift 2
	limited "$seconds" "$@" >"$log" 2>&1 || rc=$?
	local done="$(count "$log" '--- PASS') passed, $(count "$log" '--- SKIP') skipped, $(count "$log" '--- FAIL') failed"
	case $rc in
	0) row "$name" "ok ($((SECONDS - start)) s; $done)" ;;
	124 | 137) failed=1; row "$name" "NOT DONE in $((seconds * slow)) s ($done)" ;;
	*) failed=1; row "$name" "FAILED, status $rc ($done)"; tail -n 40 "$log" 2>/dev/null || cat "$log" ;;
	esac
}
finish() { row "result" "$([ $failed = 0 ] && echo passed || echo FAILED) ($SECONDS s)"; }
trap finish EXIT
trap 'failed=1; exit 1' INT TERM

# PyTorch's wheels bring cuBLAS and cuSOLVER; a machine may have them nowhere else.
if [ -n "$python" ]; then
	wheels=$(limited 20 "$python" -c '
import glob, importlib.util, os, site, sys
dirs = set(site.getsitepackages() + [site.getusersitepackages()] + sys.path)
print(":".join(sorted({g for s in dirs if s for g in glob.glob(os.path.join(s, "nvidia", "*", "lib"))})))' 2>/dev/null) || wheels=
	[ -z "$wheels" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels
fi
for d in /usr/local/cuda/lib64 /usr/local/nvidia/lib64 /usr/lib/wsl/lib; do
	[ -d $d ] && export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$d
done

printf -v today '%(%F)T' -1
row "date" "$today"
row "machine" "$(uname -sm 2>/dev/null || echo "$HOSTTYPE")"
limited 10 ./trainer-olmo doctor >"$logs/doctor.log" 2>/dev/null || true
while IFS= read -r line; do
	[[ $line =~ (CUDA|cuda:|cuBLAS|cuSOLVER) && $line != *"looked for"* ]] && line=${line#ok} && say "${line#"${line%%[! ]*}"}"
done <"$logs/doctor.log"
# The tests of the sources themselves need the sources.
check "streams, memory, kernels, libraries" 40 ./streams.test -test.v -test.short -test.skip Imports
check "operations and refreshes against float64" 100 ./cuda.test -test.v -test.short

bench=$logs/benchmarks.log
limited 50 ./cuda.test -test.run '^$' -test.bench . -test.benchtime 3x >"$bench" 2>&1
rc=$?
[ $rc = 0 ] || { failed=1; row "benchmarks" "NOT DONE, status $rc"; }
while read -r name _ rest; do
	[[ $name == Benchmark* && -n $rest ]] && row "${name%-*}" "${rest//$'\t'/ }"
done <"$bench"
if [ -n "$python" ] && limited 25 "$python" torch_peer.py >"$logs/torch.log" 2>&1; then
	while IFS= read -r line; do say "$line"; done <"$logs/torch.log"
else
	row "torch.linalg.eigh" "PyTorch with CUDA not found"
fi
exit $failed
