#!/usr/bin/env bash
# Regenerates the kernels of package gemm; with -check it only compares.
set -euo pipefail
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
GOWORK=off go test ./...
GOWORK=off go run . -dir "$scratch"
for f in "$scratch"/*; do
	if [ "${1:-}" = -check ]; then
		diff -q "$f" "../$(basename "$f")"
	else
		cp "$f" ..
	fi
done
