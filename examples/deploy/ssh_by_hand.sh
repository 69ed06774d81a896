#!/bin/bash
# A benchmark whose ranks are started by hand with ssh, one on each host: ssh_by_hand.sh node1 node2
# The first host is rank 0's. Each host has `tutti` in its PATH. Only the user can read the file job.id.
set -euo pipefail
rm -f job.id # `tutti id` overwrites no file
tutti id --at "$1:${PORT:-7000}" --file job.id
rank=0
for host in "$@"; do
  ssh "$host" 'umask 077 && cat >tutti.id' <job.id
  ssh "$host" tutti bench all_reduce --ranks $# --rank $rank --id-file tutti.id &
  ranks+=($!)
  rank=$((rank + 1))
done
for process in "${ranks[@]}"; do wait "$process"; done
