#!/usr/bin/env bash
# Puts the newest PyTorch that pip reaches into .cache/bench/torch, once; without
# pip's the system's python3-torch. What fails is printed, and `step` then measures
# our side alone.
set -u
cd "$(dirname "$0")/.."
venv=.cache/bench/torch
"$venv/bin/python" -c 'import torch' 2>/dev/null && exit 0
python3 -c 'import torch' 2>/dev/null && exit 0
log=$(mktemp)
if python3 -m venv "$venv" >"$log" 2>&1 && "$venv/bin/pip" install --no-cache-dir torch numpy >>"$log" 2>&1; then
	rm -f "$log"
	exit 0
fi
echo "step: pip cannot install torch: $(tail -n 1 "$log")" >&2
rm -rf "$venv"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	{ apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y python3-torch; } >"$log" 2>&1 ||
		echo "step: apt-get install python3-torch failed: $(tail -n 1 "$log")" >&2
fi
rm -f "$log"
exit 0
