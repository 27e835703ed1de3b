#!/usr/bin/env bash
# Runs every fuzz target for the given time (5s) or number of inputs (300x), one
# after the other. A number is what a check wants: go test can report the end of a
# time limit that falls into a running input as a failure, without any failing input.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
time=${1:-5s}
grep -rlE '^func Fuzz' --include='*_test.go' . | grep -vE '^./(bench|tools)/' | sort | while read -r file; do
	dir=$(dirname "$file")
	grep -oE '^func Fuzz[A-Za-z0-9_]+' "$file" | awk '{print $2}' | while read -r target; do
		echo "fuzz	$dir	$target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel 2 "$dir"
	done
done
