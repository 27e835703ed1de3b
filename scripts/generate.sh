#!/usr/bin/env bash
# Runs every generator (a folder _gen with a script generate.sh); with -check it
# compares with what is committed.
set -euo pipefail
cd "$(dirname "$0")/.."
find . -path '*/_gen/generate.sh' | sort | while read -r script; do
	"$script" "$@"
	echo "generate	$(dirname "$script")	ok"
done
