#!/usr/bin/env bash
# The suites that are too slow for every change.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 ASTERIA_LONG=1
go test -timeout 120m work
# Loops over every float take days under emulation.
ASTERIA_LONG= ./scripts/qemu.sh -timeout 120m ./gemm/... ./invroot/... ./kron/...
./scripts/fuzz.sh 60s
