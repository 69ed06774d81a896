#!/usr/bin/env bash
# Small calls on GPUs under compute-sanitizer: scripts/gpu_sanitize.sh BUILD_FOLDER [processes] [threads]
#
# processes (the default): each rank has a sanitizer of its own, so that a sanitizer may delay its rank's kernels but
# not the peer's kernels. threads: matrix_test, more cases, but both ranks under one sanitizer; a tool that lets one
# kernel run at a time makes no progress there, which ends by timeouts.operation and is told as such, not as an error.
#
# Environment: TOOLS (memcheck racecheck), ALGORITHMS, PROTOCOLS, LIMIT (seconds of one row, 120), TOTAL (seconds of
# all, 1500), LOGS (a folder). Exit code: 1 if a tool found an error or a run failed, 2 if a tool checked nothing.
set -uo pipefail
build=${1:?usage: scripts/gpu_sanitize.sh BUILD_FOLDER [processes] [threads]}
shift
launches=("${@:-processes}")
read -ra tools <<<"${TOOLS:-memcheck racecheck}"
read -ra protocols <<<"${PROTOCOLS:-simple ll ll128}"
read -ra algorithms <<<"${ALGORITHMS:-ring tree/direct tree/pipelined direct/one-shot direct/two-shot direct/shifted}"
limit=${LIMIT:-120}
total=${TOTAL:-1500}
logs=${LOGS:-$(mktemp -d)}
mkdir -p "$logs"
export CUDA_MODULE_LOADING=EAGER TUTTI_TIMEOUTS_OPERATION=${TUTTI_TIMEOUTS_OPERATION:-20s}

sanitizer=$(PATH="$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer" command -v compute-sanitizer) ||
  { echo "compute-sanitizer is missing; it comes with the CUDA toolkit"; exit 77; }
nvidia-smi -L 2>/dev/null | grep -q '^GPU' || { echo "skipped: there is no GPU"; exit 77; }

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# under TOOL LOG COMMAND...: the output of the program goes to the log, too.
under() {
  local tool=$1 log=$2
  shift 2
  timeout --kill-after=5 "$limit" "$sanitizer" --tool "$tool" --report-api-errors no "$@" >"$log" 2>&1
}

# run_processes TOOL LOG ALGORITHM PROTOCOL: two ranks, launched by hand. Every call is checked by bench itself.
run_processes() {
  local tool=$1 log=$2 algorithm=$3 protocol=$4 collective=all_reduce id rank pids=() code=0
  [[ $algorithm == direct/shifted ]] && collective=all_to_all
  [[ $algorithm == messages ]] && collective=send_recv
  id=127.0.0.1:$(free_port):$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  local command=("$build/bin/tutti" bench "$collective" --ranks 2 --device cuda --set "protocol=$protocol"
    --min 8 --max 128K --factor 128 --type "float32,uint8" --iters 2 --repeat 1 --warmup 1)
  [[ $algorithm == messages ]] || command+=(--set "algorithm=$algorithm")
  for rank in 0 1; do
    TUTTI_ID=$id under "$tool" "$log.$rank" "${command[@]}" --rank "$rank" &
    pids+=($!)
  done
  for rank in 0 1; do wait "${pids[$rank]}" || code=$?; done
  cat "$log".[01] >"$log"
  return "$code"
}

# run_threads TOOL LOG ALGORITHM PROTOCOL
run_threads() {
  [[ $3 == messages ]] && return 77
  under "$1" "$2" "$build/tests/matrix_test" --gpus --ranks 2 --max-count 1000 --filter "$3/$4/"
}

# verdict LOG CODE: one word or two. A tool says at the end of every process how much it found.
verdict() {
  local log=$1 code=$2 found
  found=$(grep -oE '(ERROR|RACECHECK) SUMMARY: [0-9]+' "$log" |
    awk '{ sum += $3; ++lines } END { print lines ? sum : "-" }')
  if [[ $found != 0 && $found != - ]]; then
    echo "ERRORS: $found"
  elif ((code == 124 || code == 137)) || grep -q 'made no progress' "$log"; then
    echo "no progress"
  elif ((code != 0)); then
    echo "FAILED: exit code $code"
  elif [[ $found == - ]]; then
    echo "FAILED: the tool says nothing"
  else
    echo clean
  fi
}

declare -A checked
rows=()
wrong=0
for tool in "${tools[@]}"; do
  checked[$tool]=0
  for launch in "${launches[@]}"; do
    for protocol in "${protocols[@]}"; do
      for algorithm in "${algorithms[@]}" messages; do
        log=$logs/$tool-$launch-${algorithm//\//-}-$protocol.log
        start=$SECONDS
        if ((SECONDS > total)); then
          rows+=("$tool|$launch|$algorithm|$protocol|not run: $total s are over|")
          continue
        fi
        "run_$launch" "$tool" "$log" "$algorithm" "$protocol"
        code=$?
        ((code == 77)) && continue
        said=$(verdict "$log" "$code")
        [[ $said == clean ]] && ((++checked[$tool]))
        [[ $said == ERRORS* || $said == FAILED* ]] && { ((++wrong)); grep -m 12 -E '=========|tutti:|FAILED' "$log"; }
        rows+=("$tool|$launch|$algorithm|$protocol|$said|$((SECONDS - start)) s")
        echo "${rows[-1]}"
      done
    done
  done
done

printf '\n%-10s %-10s %-16s %-7s %-24s %s\n' tool launch algorithm wire outcome took
for row in "${rows[@]}"; do
  IFS='|' read -r tool launch algorithm protocol said took <<<"$row"
  printf '%-10s %-10s %-16s %-7s %-24s %s\n' "$tool" "$launch" "$algorithm" "$protocol" "$said" "$took"
done
echo "logs: $logs"
((wrong == 0)) || exit 1
for tool in "${tools[@]}"; do
  ((checked[$tool] > 0)) || { echo "$tool checked nothing"; exit 2; }
done
