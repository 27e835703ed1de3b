#!/usr/bin/env bash
# Prepares .cache/gpu-check, a folder to carry to a machine with a GPU and without Go,
# a compiler or a network; there, ./run.sh proves the CUDA paths in at most 4 minutes
# and writes gpu-check.txt. Where this machine has a device, or g++ for the simulated
# driver, run.sh runs here as well.
set -euo pipefail
cd "$(dirname "$0")/.."
out=.cache/gpu-check
rm -rf $out
mkdir -p $out/golden
export CGO_ENABLED=0
build="-trimpath"
go test -c $build -ldflags="-s -w" -o $out/streams.test ./streams
go test -c $build -ldflags="-s -w" -o $out/cuda.test ./trainer-olmo/cuda
go build -trimpath -ldflags='-s -w' -o $out/trainer-olmo ./trainer-olmo/cmd/trainer-olmo
cp trainer-olmo/asteria/testdata/golden/*.json $out/golden/
cp scripts/gpu-check-run.sh $out/run.sh
cp scripts/gpu-check-torch.py $out/torch_peer.py
size=$(du -sk $out | cut -f1)
echo "$out: $((size / 1024)) MiB, to be carried to a machine with a GPU: ./run.sh"
[ "$size" -lt $((60 * 1024)) ] || { echo "the folder is 60 MiB or more"; exit 1; }
if [ -e /dev/nvidia0 ]; then
	$out/run.sh
elif ./scripts/cudasim.sh; then
	echo "no GPU here: a dry run against the simulated driver, whose times mean nothing"
	GPU_CHECK_SLOW=4 LD_LIBRARY_PATH=$PWD/.cache/cudasim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} $out/run.sh
fi
