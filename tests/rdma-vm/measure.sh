#!/usr/bin/env bash
# net-ib beside perftest, over the same cable and in the same run: rdma-vm/run tests/rdma-vm/measure.sh BUILD
set -euo pipefail
build=$1

raw() { # raw NAME PROGRAM [OPTION]...: one process for each end; prints the last line of figures
  local name=$1 server
  shift
  timeout 60 "$1" -d rxe1 -x 1 "${@:2}" >/tmp/server 2>&1 &
  server=$!
  for ((i = 0; i < 100; i++)); do ss -ltn | grep -q :18515 && break || sleep 0.05; done
  timeout 60 "$1" -d rxe0 -x 1 "${@:2}" 10.78.0.2 >/tmp/client 2>&1 ||
    { cat /tmp/client /tmp/server && return 1; }
  wait "$server"
  echo "$name: $(grep -E '^ *[0-9]+ +[0-9]+ ' /tmp/client | tail -n 1)"
}

for ((round = 1; round <= ${ROUNDS:-3}; round++)); do
  echo "round $round"
  raw 'ib_write_bw, 64 KiB: bytes, iterations, peak, average MiB/s' ib_write_bw -s 65536 -n 1000 -F
  raw 'ib_write_bw, 1 MiB: the same' ib_write_bw -s 1048576 -n 100 -F
  raw 'ib_send_lat, 8 B: bytes, iterations, min, max, typical, average us' ib_send_lat -s 8 -n 2000 -F
  "$build/tests/net_ib_measure"
done
