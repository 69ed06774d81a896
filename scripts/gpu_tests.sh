#!/usr/bin/env bash
# Runs what needs GPUs and was built already, within a time limit: scripts/gpu_tests.sh BUILD_FOLDER [STEP...]
#
# Steps, the quickest first: stress recursive strands large many registered family matrix random kill stop affinity
# hier. Without any, all of them.
# Prints a line for each part of a step as it ends, and the last lines of those that fail.
# Environment: RANKS (rank counts, but of affinity and hier; default 2 and the number of GPUs),
# CALLS (of the random test, 4000),
# LIMIT (seconds of one part, 150), TOTAL (seconds of all, 900), LOGS (a folder).
# Exit code: 1 where something failed, 2 where something did not run for want of time, 77 where there is no GPU.
set -uo pipefail
build=$(realpath "${1:?usage: scripts/gpu_tests.sh BUILD_FOLDER [STEP...]}")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
steps=("$@")
((${#steps[@]})) || steps=(stress recursive strands large many registered family matrix random kill stop affinity
  hier)
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || { echo "skipped: there is no GPU"; exit 77; }
read -ra ranks <<<"${RANKS:-2 $((gpus > 2 ? gpus : 3))}"
limit=${LIMIT:-150}
total=${TOTAL:-900}
logs=${LOGS:-$(mktemp -d)}
mkdir -p "$logs"
# Ranks that share a GPU must not wait for each other's kernels to be loaded, nor share queues of the hardware.
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32
export TUTTI_TIMEOUTS_OPERATION=${TUTTI_TIMEOUTS_OPERATION:-20s}

failed=0
left_out=0
part() { # part NAME COMMAND...
  local name=$1 log=$logs/${1//[^a-z0-9]/-}.log start=$SECONDS code=0 outcome=passed
  shift
  if ((SECONDS > total)); then
    echo "not run  $name: $total s are over"
    left_out=1
    return
  fi
  timeout --kill-after=5 $((total - SECONDS < limit ? total - SECONDS + 1 : limit)) "$@" >"$log" 2>&1 || code=$?
  # GoogleTest's programs end well where they skip all.
  ((code == 0)) && grep -q SKIPPED "$log" && ! grep -q '\[       OK \]' "$log" && code=77
  case $code in
    0) ;;
    77) outcome=skipped ;;
    124 | 137) outcome="TIME-OUT" failed=1 ;;
    *) outcome=FAILED failed=1 ;;
  esac
  printf '%-8s %4d s  %s: %s\n' "$outcome" $((SECONDS - start)) "$name" "$(tail -n 1 "$log" | cut -c 1-140)"
  [[ $outcome == passed || $outcome == skipped ]] || tail -n 12 "$log" | cut -c 1-200
}

stress() {
  local n protocol
  for n in "${ranks[@]}"; do
    for protocol in ll128 ll simple; do
      part "stress $n $protocol" "$build/tests/gpu_stress_test" --ranks "$n" --set "protocol=$protocol"
    done
    # Registered buffers need the small form of launches.
    ((n > 16)) || part "stress $n registered" "$build/tests/gpu_stress_test" --ranks "$n" --set protocol=simple \
      --register
    part "stress $n messages" "$build/tests/gpu_stress_test" --ranks "$n" --set protocol=simple \
      --set algorithm=direct/shifted --collectives all_gather,all_to_all --bytes 48M --calls 300
  done
}
# Scratch buffers and messages of several chunks, by the algorithms of examples/algo-recursive.
of_recursive() { # of_recursive RANKS PROTOCOL VARIANT COLLECTIVE BYTES
  part "recursive $1 $2 $3 $5" "$build/tests/gpu_stress_test" --ranks "$1" --calls 200 --collectives "$4" --bytes "$5" \
    --set "plugins.path=[$build/examples]" --set "plugins.algorithm=[ring, recursive]" \
    --set "algorithm=recursive/$3" --set "protocol=$2"
}
recursive() {
  local n protocol bytes
  for n in "${ranks[@]}"; do
    for protocol in ll128 ll simple; do
      for bytes in 5000 8M; do
        of_recursive "$n" "$protocol" bruck all_gather "$bytes"
        of_recursive "$n" "$protocol" halving all_reduce "$bytes"
        of_recursive "$n" "$protocol" hierarchical all_reduce "$bytes"
      done
    done
  done
}
# Plans whose strands are thread blocks. They are for 4 ranks.
strands() {
  local protocol bytes plan
  for plan in two_rings4 chain_strands4; do
    for protocol in ll128 ll simple; do
      for bytes in 5000 8M; do
        part "strands $plan $protocol $bytes" "$build/tests/gpu_stress_test" --ranks 4 --calls 200 \
          --collectives all_reduce --bytes "$bytes" --set "algorithm=$PWD/examples/plans/$plan.yaml" \
          --set "protocol=$protocol"
      done
    done
  done
}
# Launches of the large form. Each rank has a hardware queue of its own, of which a GPU has 32.
large() {
  local n protocol
  for n in 17 $((gpus > 1 ? 33 : 24)); do
    for protocol in ll128 ll simple; do
      part "large $n $protocol" "$build/tests/gpu_stress_test" --ranks "$n" --calls 100 --bytes 1M \
        --set "protocol=$protocol"
      of_recursive "$n" "$protocol" bruck all_gather 200K
      of_recursive "$n" "$protocol" halving all_reduce 200K
    done
  done
}
# More ranks than a program has connections. Each rank has a hardware queue of its own, of which a GPU has 32.
many() {
  local n protocol
  ((gpus > 3)) || { echo "not run  many: 68 ranks need four GPUs"; return; }
  for n in 65 68 96; do
    for protocol in ll128 ll simple; do
      part "many $n $protocol" "$build/tests/gpu_stress_test" --ranks "$n" --calls 256 --bytes 1M \
        --set "protocol=$protocol"
    done
    part "many $n" "$build/tests/gpu_stress_test" --ranks "$n" --calls 256 --bytes 100K
  done
}
registered() {
  part "registered buffers" "$build/tests/fault_registered_test"
  part "ranks that leave" "$build/tests/fault_leave_gpu_test"
  part "streams of threads" "$build/tests/thread_stream_test"
}
family() {
  part "communicators from others" env LD_LIBRARY_PATH="$build/lib/nccl:${LD_LIBRARY_PATH:-}" "$build/tests/nccl_family"
}
matrix() {
  part "matrix" "$build/tests/matrix_test" --gpus --ranks "$(IFS=, && echo "${ranks[*]}")" --max-count 70000
}
random() {
  local n protocol streams
  for n in "${ranks[@]}"; do
    # A GPU need not run branches of several ranks' graphs beside each other: those that share it have one.
    streams=$((n > gpus ? 1 : 3))
    part "random $n" "$build/tests/random_calls_test" --gpus --ranks "$n" --calls "${CALLS:-4000}" --streams "$streams"
  done
  streams=$((ranks[0] > gpus ? 1 : 3))
  for protocol in ll128 simple; do
    part "random $protocol" env TUTTI_PROTOCOL=$protocol "$build/tests/random_calls_test" --gpus \
      --ranks "${ranks[0]}" --calls "${CALLS:-4000}" --streams "$streams"
  done
}
affinity() { part "affinity" python3 tests/integration/affinity_test.py "$build/bin/tutti" cuda; }
# Every variant of hier, on pretended hosts that share the GPUs, over TCP on the loopback.
of_hier() { # of_hier VARIANT HOSTS RANKS COLLECTIVE...
  local variant=$1 hosts=$2 n=$3 collective protocol names=(a b c d e)
  for collective in "${@:4}"; do
    for protocol in simple ll; do
      part "hier $variant $collective, $n ranks on $hosts hosts, $protocol" "$build/bin/tutti" bench "$collective" \
        -n "$n" --threads --device cuda --hosts "$(IFS=, && echo "${names[*]:0:hosts}")" --set network=socket \
        --set "algorithm=hier/$variant" --set "protocol=$protocol" --min 64 --max 4M --factor 16 --iters 20 --repeat 3
    done
  done
}
hier() {
  of_hier exchange 3 6 all_reduce all_gather reduce_scatter broadcast reduce all_to_all
  of_hier multiplying 5 5 all_reduce
  of_hier binomial 5 5 broadcast reduce
  of_hier ring 3 6 all_reduce
  of_hier tree 5 10 all_reduce
  of_hier doubling 5 5 all_reduce
  of_hier doubling 4 4 all_gather reduce_scatter
  of_hier bruck 5 5 all_gather reduce_scatter all_to_all
}
stop_ranks() { part "stopped ranks" python3 tests/fault/stop_test.py "$build/bin/tutti" --gpus; }
kill_ranks() { part "killed ranks" python3 tests/fault/kill_test.py "$build/bin/tutti" --gpus; }

for step in "${steps[@]}"; do
  case $step in
    stress | recursive | strands | large | many | registered) "$step" ;;
    family | matrix | random | affinity | hier) "$step" ;;
    kill) kill_ranks ;;
    stop) stop_ranks ;;
    *) echo "there is no step '$step'"; exit 1 ;;
  esac
done
echo "logs: $logs"
((failed)) && exit 1
((left_out)) && exit 2
exit 0
