#!/usr/bin/env bash
# Regenerates the kernels of package vec; with -check it only compares.
set -euo pipefail
cd "$(dirname "$0")"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
GOWORK=off go build -o "$scratch/gen" .
cd "$scratch"
./gen -pkg vec -out kernels_amd64.s -stubs kernels_amd64.go -dir .
rm gen
for f in *; do
	if [ "${1:-}" = -check ]; then
		diff -q "$f" "$OLDPWD/../$f"
	else
		cp "$f" "$OLDPWD/../$f"
	fi
done
