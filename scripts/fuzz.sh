#!/usr/bin/env bash
# Runs every fuzz target for the given time (default 5s), one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
time=${1:-5s}
grep -rlE '^func Fuzz' --include='*_test.go' . | grep -vE '^./(bench|tools)/' | sort | while read -r file; do
	dir=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | awk '{print $2}' | while read -r target; do
		echo "fuzz	$dir	$target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -parallel 2 "$dir"
	done
done
