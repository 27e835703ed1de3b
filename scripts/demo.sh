#!/usr/bin/env bash
# Trains the demo model on the Go sources of the toolchain, once per optimizer,
# and prints where the report is.
set -euo pipefail
cd "$(dirname "$0")/.."
exec ./bin/trainer-olmo compare configs/demo.yaml "$@"
