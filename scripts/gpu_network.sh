#!/usr/bin/env bash
# Runs collectives of GPUs of two hosts, on one machine with at least one GPU, and prints a table for each network:
# scripts/gpu_network.sh BUILD_FOLDER
#
# Ranks may share a GPU. Then they are threads of one process, since a GPU runs processes by turns of some ms. The
# networks of tests/device_network move memory of the GPU themselves, between threads of one process. Each run compares
# all results with a reference.
# Environment: RANKS (default 2), MAX (bytes, default 16M), LIMIT (seconds of one run, 100).
# Exit code: 1 where a run failed, 77 where there is no GPU.
set -uo pipefail
build=$(realpath "${1:?usage: scripts/gpu_network.sh BUILD_FOLDER}")
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || { echo "skipped: there is no GPU"; exit 77; }
[[ ! -d $build/tests/networks ]] || export TUTTI_PLUGIN_PATH=$build/tests/networks
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32
export TUTTI_TIMEOUTS_OPERATION=${TUTTI_TIMEOUTS_OPERATION:-20s}
ranks=${RANKS:-2}
max=${MAX:-16M}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

run() { # run NAME ARGUMENT...
  local name=$1 code=0
  shift
  echo "== $name: tutti bench $*"
  timeout --kill-after=5 "${LIMIT:-100}" "$build/bin/tutti" bench "$@" >"$log" 2>&1 || code=$?
  ((code == 0)) || { failed=1 && echo "FAILED with exit code $code"; }
  grep -vE '^#( |$)' "$log" | cut -c 1-150
}

# expect NAME FLUSHES: checks the counts in the log. Messages without a slice, also of communicators on the host, have
# at most 256 bytes.
expect() {
  awk -v name="$1" -v flushes="$2" '
    $1 == "network" && $2 == name ":" {
      longest = $0; sub(/.*longest /, "", longest)
      if (longest + 0 > 256) bad = "a slice in memory of the host"
      total_moved += $3; total_flushed += $(NF - 1)
    }
    END {
      if (total_moved == 0) bad = "no message from memory of the GPU"
      if (total_flushed != (flushes ? total_moved : 0)) bad = total_moved " messages, " total_flushed " flushes"
      if (bad != "") { print "FAILED: " bad; exit 1 }
      print "counts are right: " total_moved " messages from memory of the GPU, " total_flushed " flushes"
    }' "$log" || failed=1
}

gpus=$(nvidia-smi -L | grep -c '^GPU')
threads=()
((ranks <= gpus)) || threads=(--threads)
# The slots of other protocols are in memory of the host.
common=(--device cuda -n "$ranks" --hosts a,b --min 8 --max "$max" --factor 8 --iters 20 --set protocol=simple)
for collective in all_reduce all_gather; do
  run "socket" "$collective" "${common[@]}" "${threads[@]}"
done
for collective in all_reduce all_gather reduce_scatter broadcast all_to_all; do
  for network in device device_flushed; do
    run "$network" "$collective" "${common[@]}" --threads --set "plugins.network=[$network]"
    expect "$network" "$([[ $network == device_flushed ]] && echo 1 || echo 0)"
  done
done
run "device, not direct" all_reduce "${common[@]}" --threads --set "plugins.network=[device]" --set net.direct=off
exit "$failed"
