#!/usr/bin/env bash
# Runs a benchmark beside its peers: bench.sh peers|step|nvme [flags].
set -euo pipefail
cd "$(dirname "$0")/../bench"
export CGO_ENABLED=0
name=$1
shift
[ ! -x "./setup-$name.sh" ] || "./setup-$name.sh"
exec go run "./cmd/$name" "$@"
