#!/usr/bin/env bash
# Trains on two hosts that are network namespaces of this machine: mpirun across a
# veth pair of limited bandwidth, the bytes between the hosts taken from the counters
# of the interface. Prints the table of docs/benchmarks.md and fails when the numbers
# are not what the documentation promises, or when a host that is lost is not named.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
	echo "test-cluster: skipped: $1"
	exit 0
}
fail() {
	echo "test-cluster: FAILED: $1" >&2
	exit 1
}

[ "$(uname -s)" = Linux ] || skip "network namespaces are Linux's"
[ "$(id -u)" = 0 ] || skip "needs root for network namespaces"
if ! command -v ip >/dev/null || ! command -v tc >/dev/null || ! command -v mpirun >/dev/null || ! command -v orted >/dev/null; then
	command -v apt-get >/dev/null || skip "no ip, tc or mpirun, and no apt-get to install them with"
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 openmpi-bin libopenmpi-dev; } >/dev/null ||
		skip "iproute2, openmpi-bin and libopenmpi-dev cannot be installed"
fi
command -v unshare >/dev/null || skip "no unshare (util-linux)"

tmp=$(mktemp -d)
h0=asta$$ h1=astb$$ v0=va$$ v1=vb$$
cleanup() {
	local ns
	for ns in $h0 $h1; do
		ip netns pids $ns 2>/dev/null | xargs -r kill -9 2>/dev/null || true
		ip netns del $ns 2>/dev/null || true
		rm -rf "/etc/netns/$ns"
	done
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

ip netns add $h0 2>/dev/null || skip "no right to make network namespaces"
ip netns add $h1
ip -n $h0 link set lo up
ip -n $h1 link set lo up
ip link add $v0 netns $h0 type veth peer name $v1 netns $h1 2>/dev/null || skip "no veth devices in this kernel"
ip -n $h0 addr add 10.77.0.1/24 dev $v0
ip -n $h1 addr add 10.77.0.2/24 dev $v1
ip -n $h0 link set $v0 up
ip -n $h1 link set $v1 up
shaped="1 Gbit/s"
for side in "$h0 $v0" "$h1 $v1"; do
	read -r ns dev <<<"$side"
	ip netns exec "$ns" tc qdisc add dev "$dev" root tbf rate 1gbit burst 256kb latency 50ms 2>/dev/null || shaped="not limited (no tbf in this kernel)"
	mkdir -p "/etc/netns/$ns" # ip netns exec puts these over /etc
	printf '127.0.0.1 localhost\n10.77.0.1 %s\n10.77.0.2 %s\n' $h0 $h1 >"/etc/netns/$ns/hosts"
done

# The agent that mpirun starts a daemon on a host with, in place of ssh.
cat >"$tmp/agent" <<'AGENT'
#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
AGENT
chmod +x "$tmp/agent"

CGO_ENABLED=0 go build -o "$tmp/trainer-olmo" ./trainer-olmo/cmd/trainer-olmo
for i in $(seq 2000); do echo "line $i of a text that goes on, $((i * i)) times"; done >"$tmp/text.txt"
cat >"$tmp/cluster.yaml" <<YAML
run_name: cluster
save_folder: $tmp/run
model: {d_model: 128, n_layers: 4, n_heads: 4, hidden_size: 128}
data: {paths: [$tmp/text.txt], cache_folder: $tmp/cache, sequence_length: 16}
train: {steps: 10, global_batch_size: 128, micro_batch_size: 32, threads: 1}
optimizer: {lr: 1e-3, name: adamw}
scheduler: {warmup: 2}
checkpoint: {no_final: true}
eval: {disabled: true}
runtime: {workers: 1}
parallel: {deadline: 20s}
YAML

# world RANKS-OPTIONS -- OVERRIDES: mpirun on both hosts, ranks 0 and 2 on the first.
world() {
	local options=()
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	rm -rf "$tmp/run"
	ip netns exec $h0 unshare --uts sh -c 'hostname "$0"; exec mpirun "$@"' $h0 --allow-run-as-root --oversubscribe \
		-np 4 --map-by node -H $h0:2,$h1:2 --mca plm_rsh_agent "$tmp/agent" --mca pml ob1 --mca btl self,vader,tcp \
		--mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 --mca btl_vader_single_copy_mechanism none \
		--mca mpi_yield_when_idle 1 ${options[@]+"${options[@]}"} "$tmp/trainer-olmo" train "$tmp/cluster.yaml" "$@"
}

# wire: bytes that the first host's interface has sent and received.
wire() {
	ip netns exec $h0 sh -c "echo \$((\$(cat /sys/class/net/$v0/statistics/tx_bytes) + \$(cat /sys/class/net/$v0/statistics/rx_bytes)))"
}

# per_step OVERRIDES: bytes between the hosts for one step, from a long and a short run,
# so that what a run sends at its start and its end does not count.
per_step() {
	local short=$1 long=$2 a b c
	shift 2
	a=$(wire)
	world -- train.steps="$short" "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; fail "the run $* failed"; }
	b=$(wire)
	world -- train.steps="$long" "$@" >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; fail "the run $* failed"; }
	c=$(wire)
	echo $(((c - b - (b - a)) / (long - short)))
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }
atmost() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }

echo "two hosts x two ranks, ranks alternating, $shaped between them"

# Nodes are found by themselves: the ranks of a host share one.
world -- train.steps=2 >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; fail "training across the hosts"; }
nodes=$(grep -o '"node": [0-9]' "$tmp/run/health.json" | tr -dc '0-9')
[ "$nodes" = 0101 ] || fail "the ranks are on nodes $nodes, want 0101"

flat=$(per_step 4 24 parallel.flat=true)
two=$(per_step 4 24)
printf '%-58s %16s %10s\n' "gradients of a step" "bytes" "of flat"
printf '%-58s %16d %10s\n' "flat" "$flat" 1
printf '%-58s %16d %10s\n' "two stages" "$two" "$(ratio "$two" "$flat")"
atmost "$(ratio "$two" "$flat")" 0.55 || fail "two stages send $(ratio "$two" "$flat") of flat, want 0.55 or less"

# Refreshes by their owners: what is sent beside the gradients.
refreshes() { # FREQUENCY STALENESS: bytes of roots and bases for one step
	local all
	all=$(per_step 10 40 optimizer.name=shampoo runtime.mode=asteria runtime.lag_start=0 optimizer.precondition_frequency="$1" runtime.staleness="$2" runtime.lag=1)
		echo $((all - two))
}
f1s1=$(refreshes 1 1)
f1s5=$(refreshes 1 5)
f10s1=$(refreshes 10 1)
f10s5=$(refreshes 10 5)
printf '%-58s %16s %10s\n' "roots of a step, selective, beside the gradients" "bytes" "of S=1"
printf '%-58s %16d %10s\n' "f=1, S=1" "$f1s1" 1
printf '%-58s %16d %10s\n' "f=1, S=5" "$f1s5" "$(ratio "$f1s5" "$f1s1")"
printf '%-58s %16d %10s\n' "f=10, S=1" "$f10s1" 1
printf '%-58s %16d %10s\n' "f=10, S=5" "$f10s5" "$(ratio "$f10s5" "$f10s1")"
atmost "$(ratio "$f1s5" "$f1s1")" 0.334 || fail "S=5 sends $(ratio "$f1s5" "$f1s1") of S=1 at f=1, want a third or less"

# pid RANK: the process of a rank.
pid() {
	local p
	for p in $(pgrep -f "^$tmp/trainer-olmo train"); do
		if tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then echo "$p"; fi
	done
}

# lost NAME COMMAND CAUSE: the other host's leader, rank 1, goes away during a run; ranks 0
# and 2, on the first host, must name it or its neighbour within the deadline and 5 s.
lost() {
	local run start
	rm -rf "$tmp/run"
	world --enable-recovery -- train.steps=100000 parallel.deadline=4s checkpoint.interval=5 >"$tmp/log" 2>&1 &
	run=$!
	for _ in $(seq 900); do
		[ -e "$tmp/run/checkpoints/latest" ] || [ -n "$(ls "$tmp/run/checkpoints" 2>/dev/null)" ] && break
		sleep 0.1
	done
	local ns near far
	near=("$(pid 0)" "$(pid 2)")
	far=("$(pid 1)" "$(pid 3)")
	[ -n "${near[0]}" ] && [ -n "${far[0]}" ] || { cat "$tmp/log" >&2; fail "$1: the ranks do not start"; }
	eval "$2"
	start=$(date +%s%N)
	while kill -0 "${near[0]}" 2>/dev/null || kill -0 "${near[1]}" 2>/dev/null; do
		[ $((($(date +%s%N) - start) / 1000000)) -lt 20000 ] || break
		sleep 0.1
	done
	local took=$((($(date +%s%N) - start) / 1000000))
	for ns in $h0 $h1; do # mpirun waits for what is left
		ip netns pids $ns | xargs -r kill -9 2>/dev/null || true
	done
	wait $run 2>/dev/null || true
	ip -n $h0 link set $v0 up
	[ $took -le 9500 ] || { cat "$tmp/log" >&2; fail "$1: the survivors needed $took ms, want 9000 at most"; }
	grep -q "hiersync: rank $3" "$tmp/log" || { cat "$tmp/log" >&2; fail "$1: nobody names rank $3"; }
	echo "$1: the first host's ranks ended after $took ms and name it"
}
lost "the second host's leader is killed" 'kill -9 ${far[0]}' '1: connection lost'
lost "the second host's leader is stopped" 'kill -STOP ${far[0]}' '1: no heartbeat'
lost "the cable is cut" 'ip -n $h0 link set $v0 down' '[13]: no heartbeat'

# The run goes on from its last checkpoint, on one host with one rank.
"$tmp/trainer-olmo" digest "$tmp/run" >/dev/null || fail "the last checkpoint does not load"
stop=$(ls "$tmp/run/checkpoints" | sed -n 's/^step\([0-9]*\)$/\1/p' | sort -n | tail -1)
"$tmp/trainer-olmo" train "$tmp/cluster.yaml" train.steps=100000 train.stop_at=$((stop + 3)) >"$tmp/log" 2>&1 || { cat "$tmp/log" >&2; fail "one rank does not go on"; }
echo "one rank goes on from step $stop"

# Without the library everything but mpirun works. It is hidden by an empty file.
hide() {
	unshare --mount sh -c 'for f in $(ldconfig -p | sed -n "s/.*libmpi\.so\.40 .*=> //p"); do mount --bind /dev/null "$(readlink -f "$f")"; done; exec "$@"' sh "$@"
}
hide "$tmp/trainer-olmo" doctor | grep -A1 MPI | grep -q "libmpi.so.40" || fail "doctor does not say that MPI is missing"
hide "$tmp/trainer-olmo" doctor | grep '^[^o].*MPI ' || fail "doctor does not say that MPI is missing"
hide "$tmp/trainer-olmo" train "$tmp/cluster.yaml" save_folder="$tmp/alone" parallel.ranks=2 train.steps=3 >"$tmp/log" 2>&1 ||
	{ cat "$tmp/log" >&2; fail "ranks inside one process need no MPI"; }
if OMPI_COMM_WORLD_SIZE=2 hide "$tmp/trainer-olmo" train "$tmp/cluster.yaml" save_folder="$tmp/none" >"$tmp/log" 2>&1; then
	fail "a rank under mpirun trains alone where the library is missing"
fi
grep -q 'libmpi.so.40' "$tmp/log" || { cat "$tmp/log" >&2; fail "the error does not name the library"; }
echo "without the library: doctor says so, ranks in one process train, a rank under mpirun fails with: $(tail -1 "$tmp/log")"
echo "test-cluster: ok"
