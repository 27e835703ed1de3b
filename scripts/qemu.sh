#!/usr/bin/env bash
# Runs go test for arm64: qemu.sh [flags] packages. On another processor the tests run
# under qemu-user, which is installed with apt where that is allowed; where it cannot
# be had, the script says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOOS=linux GOARCH=arm64

find_qemu() { command -v qemu-aarch64 || command -v qemu-aarch64-static; }

case $(uname -sm) in
"Linux aarch64") exec go test "$@" ;;
Linux\ *) ;;
*)
	echo "skipped: qemu-user runs on Linux only"
	exit 0
	;;
esac
if ! find_qemu >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	{ apt-get update && apt-get install -y --no-install-recommends qemu-user; } >/dev/null 2>&1 || true
fi
if ! qemu=$(find_qemu); then
	echo "skipped: tests for arm64 need qemu-aarch64 (package qemu-user), not found"
	exit 0
fi
exec go test -exec "$qemu" "$@"
