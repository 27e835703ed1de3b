#!/usr/bin/env bash
# Every CUDA path against the simulated driver, also with the race detector. Skipped,
# with the reason, where there is no C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
rc=0
./scripts/cudasim.sh || rc=$?
[ $rc -eq 3 ] && exit 0
[ $rc -eq 0 ] || exit $rc
export LD_LIBRARY_PATH=$PWD/.cache/cudasim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export ASTERIA_REQUIRE_GPU=1 # nothing may be skipped for want of a device
packages=$(grep -v '^#' scripts/cuda-packages.txt)
ASTERIA_LONG=1 CGO_ENABLED=0 go test ./streams
CGO_ENABLED=0 go test -count=1 $packages
CGO_ENABLED=0 go test -count=1 -run Accelerator ./trainer-olmo/train
(cd streams/gorgonia && CGO_ENABLED=0 go vet -tags cuda ./... && CGO_ENABLED=0 go test -count=1 -tags cuda ./...)
CGO_ENABLED=1 go test -race -short -count=1 $packages
