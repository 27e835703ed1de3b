#!/usr/bin/env bash
# Writes the assembly of the module; with -check it compares with what is committed.
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = -check ]; then
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	GOWORK=off go run . -dir "$scratch"
	for f in "$scratch"/*; do
		diff -q "$f" "../$(basename "$f")"
	done
else
	GOWORK=off go run . -dir ..
fi
