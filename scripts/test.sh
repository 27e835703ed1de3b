#!/usr/bin/env bash
# Everything that must hold before a change lands. Steps run in order and stop at
# the first failure; the output of go test is kept and printed again at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v go >/dev/null || { echo "make test needs Go 1.25 or newer: https://go.dev/dl"; exit 2; }
export CGO_ENABLED=0
mkdir -p .cache
log=.cache/test.log
: >"$log"

step() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

# gotest runs go test and keeps its lines for the summary.
gotest() { go test "$@" 2>&1 | tee -a "$log"; }

step "format"
bad=$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l)
[ -z "$bad" ] || { echo "not gofmt'ed: $bad"; exit 1; }
step "vet"
go vet work
(cd tools && GOWORK=off go vet ./... && GOWORK=off go test ./... 2>&1 | tee -a "../$log")
step "lint"
make -s lint
step "go.work and go.mod are tidy"
make -s tidy-check
step "tests of every module"
gotest work
step "portable kernels (noasm)"
gotest -short -tags noasm ./gemm/... ./invroot/... ./kron/...
step "race detector"
if command -v gcc >/dev/null || command -v clang >/dev/null; then
	CGO_ENABLED=1 gotest -race -short $(grep -v '^#' scripts/race-packages.txt)
else
	echo "skipped: the race detector needs a C compiler (gcc or clang), none found"
fi
step "CUDA paths against the simulated driver"
./scripts/test-cuda.sh 2>&1 | tee -a "$log"
step "other systems and processors"
make -s cross
step "arm64 under qemu-user"
make -s arm64 | tee -a "$log"
step "each module alone, GOWORK=off"
make -s alone
step "consumer: go get each module from a file proxy"
make -s consumer
step "generated assembly"
make -s generate-check
./scripts/ptx.sh -check
step "fuzz smoke"
make -s fuzz FUZZTIME=300x
step "benchmarks run once"
make -s bench-smoke >/dev/null
step "summary"
grep -E '^(ok|FAIL|---|\?|panic)' "$log"
