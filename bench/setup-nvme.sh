#!/usr/bin/env bash
# Installs fio where it is missing and may be installed. What fails is printed, and
# `nvme` then measures our side alone.
set -u
command -v fio >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "nvme: fio is missing; install it to compare" >&2
	exit 0
fi
log=$(mktemp)
{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y fio; } >"$log" 2>&1 ||
	echo "nvme: apt-get install fio failed: $(tail -n 1 "$log")" >&2
rm -f "$log"
exit 0
