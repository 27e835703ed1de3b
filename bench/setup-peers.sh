#!/usr/bin/env bash
# Installs the libraries that `peers` compares with, where apt and root are at
# hand. What is missing afterwards is left out of the tables, with the reason.
set -u
have() { ldconfig -p 2>/dev/null | grep -q "$1"; }
missing=()
have libopenblas.so.0 || missing+=(libopenblas-dev)
have libblis.so.4 || missing+=(libblis-dev)
have libdnnl.so || missing+=(libdnnl-dev)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "peers: cannot install ${missing[*]}: needs root and apt-get" >&2
	exit 0
fi
log=$(mktemp)
{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y "${missing[@]}"; } >"$log" 2>&1 ||
	{ echo "peers: apt-get install ${missing[*]} failed:"; tail -n 3 "$log"; } >&2
rm -f "$log"
exit 0
