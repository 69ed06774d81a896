#!/usr/bin/env bash
# Two ranks lose a cable in the middle of a large all-reduce: with a second rail they complete it, with one rail they
# fail. RDMA_VM_LINKS=2 rdma-vm/run tests/rdma-vm/lost_cable.sh BUILD
# The environment may set ALL_REDUCE, the MiB of the all-reduce (default 64M).
set -euo pipefail
build=$1
export TUTTI_NETWORK=ib

sent_packets() { # of both ends of the first cable
  echo $(($(<"/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts") + \
    $(<"/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts")))
}

# losing_a_cable RAILS DEVICES0 DEVICES1: the all-reduce of two ranks, during which rdma1 goes down. The ranks meet over
# the loopback interface. Sets `codes` and `seconds`; the output is in /tmp/rank0 and /tmp/rank1.
losing_a_cable() {
  local rank pids=() before devices=("$2" "$3") start
  export TUTTI_ID=127.0.0.1:42999:$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  before=$(sent_packets)
  for rank in 0 1; do
    timeout 250 "$build/bin/tutti" bench all_reduce --ranks 2 --rank "$rank" --set "host=h$rank" \
      --set "settings.net.ib.devices=[${devices[rank]}]" --set "settings.net.ib.rails=$1" \
      --set timeouts.peer_loss=4s --min "$size" --max "$size" --iters 2 --repeat 1 >"/tmp/rank$rank" 2>&1 &
    pids+=($!)
  done
  # A quarter of the first call: each rank sends as many bytes as the buffer has, in packets of 4 KiB.
  while (($(sent_packets) - before < ${size%M} * 128)) && kill -0 "${pids[0]}" 2>/dev/null; do sleep 0.05; done
  ip link set rdma1 down
  start=$SECONDS codes=()
  for pid in "${pids[@]}"; do
    wait "$pid" && codes+=(0) || codes+=($?)
  done
  seconds=$((SECONDS - start))
  ip link set rdma1 up
  ip route replace 10.78.0.0/24 dev rdma0 table 101
  ip route replace 10.78.0.0/24 dev rdma1 table 102
  echo "rails=$1: exit codes ${codes[*]}, $seconds s after the cable"
  grep -h 'lost the rail\|rxe1' /tmp/rank0 /tmp/rank1 | head -n 8
}
expect() { # expect FILE PATTERN...
  local pattern
  for pattern in "${@:2}"; do
    grep -q -- "$pattern" "$1" || { echo "no '$pattern' in $1:" && tail -n 20 "$1" && return 1; }
  done
}

size=${ALL_REDUCE:-64M}
losing_a_cable 2 =rxe0,=rxe2 =rxe1,=rxe3
[[ ${codes[*]} == '0 0' ]] || { tail -n 20 /tmp/rank0 /tmp/rank1 && exit 1; }
expect /tmp/rank0 'wrong 0$' 'lost the rail from rxe0 to rxe1' 'goes on over 1 of 2 rails'
expect /tmp/rank1 'lost the rail from rxe1 to rxe0'
losing_a_cable 1 =rxe0 =rxe1
[[ ${codes[*]} != *0* ]] && ((seconds < 20)) || { tail -n 20 /tmp/rank0 /tmp/rank1 && exit 1; }
expect /tmp/rank0 '10.78.0.[12] (rxe[01])' 'port 1 of rxe0 is down' 'rxe1'
