#!/usr/bin/env bash
# mpi_netns.sh BUILD: the collectives over MPI between two machines, as far as one machine can show it: two network
# namespaces with names of their own, joined by a veth pair, so that every byte between them goes through TCP. The
# ranks compare each result with the interpreter's, bit for bit, as they do on one machine and in threads. Exit
# status 77: skipped, where namespaces may not be made or there is no mpirun.
set -euo pipefail
build=$(cd "${1:?BUILD folder}" && pwd)
skip() { echo "skipped: $1"; exit 77; }
command -v mpirun >/dev/null || skip "no mpirun"
command -v ip >/dev/null || skip "no ip (iproute2)"
[ -e "$build/libcaravan-mpi.so" ] || skip "built without MPI"

a=cvn-a-$$ b=cvn-b-$$
work=$(mktemp -d)
cleanup() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
ip netns add "$a" 2>/dev/null || skip "this user may not make network namespaces"
ip netns add "$b"
ip link add "va$$" netns "$a" type veth peer name "vb$$" netns "$b" 2>/dev/null || skip "no veth here"
ip -n "$a" addr add 10.77.0.1/24 dev "va$$"
ip -n "$b" addr add 10.77.0.2/24 dev "vb$$"
for n in "$a" "$b"; do ip -n "$n" link set lo up; done
ip -n "$a" link set "va$$" up
ip -n "$b" link set "vb$$" up

# In place of ssh: HOST COMMAND…, in the other namespace, under a name of its own.
cat >"$work/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c "hostname machine-b; \$*"
AGENT
chmod +x "$work/agent"

run() { # ARGUMENTS of test_mpi…
    timeout 120 ip netns exec "$a" unshare --uts sh -c 'hostname machine-a; exec "$@"' sh \
        mpirun --allow-run-as-root --oversubscribe -n 4 -host 10.77.0.1:2,10.77.0.2:2 \
        --mca plm_rsh_agent "$work/agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 \
        --mca oob_tcp_if_include 10.77.0.0/24 "$build/test_mpi" "$@"
}
before=$(ip -n "$b" -s -j link show "vb$$" | grep -oE '"rx":\{"bytes":[0-9]+' | grep -oE '[0-9]+$')
run bits 1 | tee "$work/out"
grep -q '^4 devices agree' "$work/out"
run bits 2 | tee "$work/out"
grep -q '^8 devices agree' "$work/out"
after=$(ip -n "$b" -s -j link show "vb$$" | grep -oE '"rx":\{"bytes":[0-9]+' | grep -oE '[0-9]+$')
echo "machine-b received $((after - before)) bytes over the link"
[ $((after - before)) -gt 100000 ]
run settings >"$work/out" 2>&1 && exit 1
grep -q 'rank 2 on machine-b runs' "$work/out"
echo "same bits, and the machine is named"
