#!/usr/bin/env bash
# Proves the CUDA paths on this machine; see scripts/gpu-check.sh. Everything that is
# printed at the end also goes to gpu-check.txt beside this script.
set -uo pipefail
cd "$(dirname "$0")"
export ASTERIA_REQUIRE_GPU=1 ASTERIA_GOLDEN_OPTIM=$PWD/golden
# PyTorch's wheels bring cuBLAS and cuSOLVER; a machine may have them nowhere else.
wheels=$(python3 -c 'import glob,os,site; print(":".join(g for s in site.getsitepackages() for g in glob.glob(os.path.join(s,"nvidia","*","lib"))))' 2>/dev/null || true)
[ -z "$wheels" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$wheels
table=gpu-check.txt
failed=0
row() { printf '%-44s %s\n' "$1" "$2" >>$table; }
check() { # name, command...
	local name=$1 log start=$SECONDS
	shift
	log=$(mktemp)
	if timeout 100 "$@" >"$log" 2>&1; then
		row "$name" "ok ($((SECONDS - start)) s, $(grep -c -- '--- SKIP' "$log") skipped)"
	else
		row "$name" "FAILED"
		failed=1
		tail -40 "$log"
	fi
	rm -f "$log"
}
: >$table
row "date" "$(date -u +%F)"
row "machine" "$(uname -sm)"
./trainer-olmo doctor 2>/dev/null | grep -E '(CUDA|cuda:|cuBLAS|cuSOLVER)' | grep -v 'looked for' | sed 's/^ok *//' >>$table
# The tests of the sources themselves need the sources.
check "streams, memory, kernels, libraries" ./streams.test -test.v -test.short -test.skip Imports
check "operations and refreshes against float64" ./cuda.test -test.v
log=$(mktemp)
timeout 90 ./cuda.test -test.run '^$' -test.bench . -test.benchtime 3x >"$log" 2>&1 || failed=1
awk '/^Benchmark/ { name = $1; sub(/-[0-9]+$/, "", name); $1 = ""; $2 = ""; printf "%-44s%s\n", name, $0 }' "$log" >>$table
rm -f "$log"
python3 torch_peer.py >>$table 2>/dev/null || row "torch.linalg.eigh" "PyTorch with CUDA not found"
row "result" "$([ $failed = 0 ] && echo passed || echo FAILED)"
cat $table
exit $failed
