#!/usr/bin/env bash
# Jobs over net-ib, inside the emulated machine: rdma-vm/run tests/rdma-vm/jobs.sh BUILD
# Every collective is checked by matrix_test; two ranks on the two ends of a cable, and four, run `tutti bench`.
set -euo pipefail
build=$1
export TUTTI_NETWORK=ib
timeout 200 "$build/tests/matrix_test" --seed 1 --ranks 2,4 --max-count 4097 --filter 'simple/own hosts'

across_the_cable() { # across_the_cable RANKS: odd ranks on rxe1, even ranks on rxe0
  local ranks=$1 rank pids=()
  export TUTTI_ID=10.78.0.1:41999:$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  for ((rank = 0; rank < ranks; rank++)); do
    timeout 60 "$build/bin/tutti" bench all_reduce --ranks "$ranks" --rank "$rank" --set "host=h$rank" \
      --set "settings.net.ib.devices=[=rxe$((rank % 2))]" --min 8 --max 512K --factor 16 --iters 3 --repeat 1 \
      >"/tmp/rank$rank" 2>&1 &
    pids+=($!)
  done
  local failed=0
  for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
  cat /tmp/rank0
  ((failed == 0)) || { tail -n 3 /tmp/rank* && return 1; }
  grep -q 'net-ib.*×' /tmp/rank0 && grep -q 'wrong 0$' /tmp/rank0
}
across_the_cable 2
across_the_cable 4
