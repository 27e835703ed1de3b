#!/usr/bin/env bash
# Vets every module for the systems and processors that no test machine has.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
for target in linux/arm64 linux/386 darwin/arm64 windows/amd64; do
	GOOS=${target%/*} GOARCH=${target#*/} go vet work
	echo "cross	$target	ok"
done
