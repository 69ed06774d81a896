#!/usr/bin/env bash
# Runs programs for NCCL on this machine's GPUs, over Tutti's libnccl.so.2 and over NCCL's, and prints a table:
#   scripts/clients_check.sh [BUILD_FOLDER] [STEPS]
# STEPS: a regular expression of steps to run. Builds missing programs first, unless PREBUILT is set. Each step has a
# time-out; logs stay in BUILD_FOLDER/clients.
# PYTHON: an interpreter that has PyTorch (and CuPy, JAX). NCCL_LIBRARY: NCCL's own libnccl.so.2. RANKS: numbers of
# ranks, ascending (1 2 4 8). SHARE: if there are more ranks than GPUs, they share GPUs. NCCL refuses this, so the
# results are compared with Gloo's.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=${1:-/tmp/tutti-gpu}
steps=${2:-.}
python=${PYTHON:-python3}
clients=$PWD/tests/clients
mkdir -p "$build/clients"
build=$(cd "$build" && pwd)
logs=$build/clients

make_programs() {
  local plugins=()
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=ON -DTUTTI_EXAMPLES=OFF -DTUTTI_BENCH=OFF &&
    mapfile -t plugins < <(cmake --build "$build" --target help |
      grep -oE 'tutti-(algo|proto|net|tuner)-[a-z0-9]+' | sort -u) &&
    cmake --build "$build" -j "$(nproc)" --target tutti_nccl nccl_arguments nccl_codes nccl_family nccl_like \
      nccl_api_cost "${plugins[@]}"
}
[[ -n ${PREBUILT:-} ]] || make_programs >"$logs/build.log" 2>&1 || {
  grep -E "error|Error" "$logs/build.log" | head -20
  tail -5 "$logs/build.log"
  exit 1
}

own=$build/lib/nccl/libnccl.so.2
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU') || gpus=0
find_nccl() {
  "$python" -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null ||
    ls /usr/local/cuda/lib64/libnccl.so.2 2>/dev/null
}
nccl=${NCCL_LIBRARY:-$(find_nccl)} || nccl=
has() { "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)" 2>/dev/null; }

# If GPUs are lent to virtual machines, guests cannot use NVLink's multicast.
export NCCL_NVLS_ENABLE=${NCCL_NVLS_ENABLE:-0} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=4
# A step's time-out must not be the first to notice that something stands still.
export TUTTI_TIMEOUTS_OPERATION=${TUTTI_TIMEOUTS_OPERATION:-40s}
export TUTTI_TIMEOUTS_BOOTSTRAP=${TUTTI_TIMEOUTS_BOOTSTRAP:-60s}

table=()
failed=0
row() { # row RESULT SECONDS NAME DETAIL
  table+=("$(printf '%-8s %5s s  %-30s %s' "$@")")
  printf '%s\n' "${table[-1]}"
}

step() { # step NAME SECONDS COMMAND...: ends with 77 where there is nothing to run
  local name=$1 limit=$2 start=$SECONDS log=$logs/$1.log code=0 result
  shift 2
  [[ $name =~ $steps ]] || return 0
  timeout -k 10 "$limit" "$@" >"$log" 2>&1 || code=$?
  case $code in
    0) result=passed ;;
    77) result=skipped ;;
    124 | 137) result=LATE ;;
    *) result=FAILED ;;
  esac
  row "$result" $((SECONDS - start)) "$name" \
    "$(grep -aE '^(passed|skipped|WRONG|error|fsdp|[0-9]+ )' "$log" | tail -1 | cut -c1-150)"
  [[ $result == passed || $result == skipped ]] && return 0
  failed=1
  grep -aE '^(WRONG|BROKEN|differs)|^\[rank|warn nccl|Error' "$log" | head -20 | cut -c1-300
  tail -20 "$log" | cut -c1-300
  if [[ -e $logs/$name.tutti ]]; then
    echo "--- the end of $logs/$name.tutti"
    tail -15 "$logs/$name.tutti" | cut -c1-300
  fi
}
may_differ() { # as step, but a failure is only told
  local before=$failed
  step "$@"
  failed=$before
}
lacks() { # lacks NAME WHY
  [[ $1 =~ $steps ]] && row skipped 0 "$1" "$2"
}
# PyTorch, CuPy and JAX of PyPI look for the library where PyPI puts it first: LD_LIBRARY_PATH does not reach them.
with_own=(env LD_PRELOAD="$own")
with_nccl=(env LD_PRELOAD="$nccl")
# The programs here name the library by its soname: a library that was on the path before must not come first.
on_path=(env LD_LIBRARY_PATH="$(dirname "$own")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
torch_ranks() { # torch_ranks RANKS: the start of a command
  local port
  port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  printf '%s\0' "$python" -m torch.distributed.run --nnodes 1 --nproc-per-node "$1" --master-addr 127.0.0.1 \
    --master-port "$port"
}

begin_sharing() {
  # Ranks that share a GPU must not wait for each other's kernels to be loaded, nor share queues of the hardware.
  export NCCL_MULTI_RANK_GPU_ENABLE=1 CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32
}

programs() { # programs RANKS
  local n=$1 few=()
  ((n <= gpus)) || few=(-n 20 -e 65536 --share)
  step "like-processes-$n" 250 "$build/tests/nccl_like" --library "$own" -p "$n" "${few[@]}"
  ((n < 2)) || step "like-threads-$n" 250 "$build/tests/nccl_like" --library "$own" -t "$n" "${few[@]}"
  ((n < 2)) || step "like-groups-$n" 250 "$build/tests/nccl_like" --library "$own" -g "$n" "${few[@]}"
  [[ -z $nccl ]] || ((n > gpus)) ||
    step "like-processes-$n-on-nccl" 250 "$build/tests/nccl_like" --library "$nccl" -p "$n"
}

pytorch() { # pytorch RANKS
  local n=$1 ranks all=$clients/torch_collectives.py training=$clients/torch_training.py
  if ! has torch; then
    lacks "torch-$n" "no PyTorch in $python"
    return
  fi
  mapfile -d '' ranks < <(torch_ranks "$n")
  step "torch-collectives-$n" 180 "${with_own[@]}" "${ranks[@]}" "$all" --expect tutti
  step "torch-collectives-$n-eager" 180 "${with_own[@]}" "${ranks[@]}" "$all" --expect tutti --eager
  step "torch-training-$n" 180 "${with_own[@]}" "${ranks[@]}" "$training" --expect tutti --out "$logs/tutti-$n.json"
  if ((n > gpus)); then
    step "torch-training-$n-on-gloo" 180 env CUDA_VISIBLE_DEVICES= "${ranks[@]}" "$training" --backend gloo \
      --out "$logs/gloo-$n.json"
    step "torch-training-$n-compared" 60 "$python" "$training" --compare "$logs/gloo-$n.json" "$logs/tutti-$n.json"
    return
  fi
  [[ -n $nccl ]] || return 0
  step "torch-collectives-$n-on-nccl" 180 "${with_nccl[@]}" "${ranks[@]}" "$all" --expect nccl --eager
  step "torch-training-$n-on-nccl" 180 "${with_nccl[@]}" "${ranks[@]}" "$training" --expect nccl \
    --out "$logs/nccl-$n.json"
  step "torch-training-$n-compared" 60 "$python" "$training" --compare "$logs/nccl-$n.json" "$logs/tutti-$n.json"
}

others() { # runs the remaining clients: others RANKS
  local n=$1 log
  if has cupy; then
    log=$logs/cupy-$n.tutti
    rm -f "$log"
    step "cupy-$n" 150 env TUTTI_LOG_LEVEL=info TUTTI_LOG_FILE="$log" "${with_own[@]}" "$python" \
      "$clients/cupy_collectives.py" --expect tutti --ranks "$n"
  else
    lacks "cupy-$n" "no CuPy in $python"
  fi
}

echo "$gpus GPUs; Tutti: $own; NCCL: ${nccl:-none}; $("$python" --version 2>&1)"
step symbols 60 "$python" tests/integration/nccl_symbols_test.py "$own" compat/nccl/symbols.txt nm
step arguments 60 "${on_path[@]}" "$build/tests/nccl_arguments"
step variables 60 "${on_path[@]}" "$python" tests/integration/nccl_environment_test.py "$build/tests/nccl_arguments"
if ((gpus == 0)); then
  lacks gpus "no GPU: nothing else can run"
else
  step one-rank 60 "${on_path[@]}" "$build/tests/nccl_arguments" one_rank
  step codes 240 "${on_path[@]}" "$build/tests/nccl_codes"
  step family 200 "${on_path[@]}" "$build/tests/nccl_family"
  # Differences between NCCL and its documentation are reported, but are no failures of Tutti.
  [[ -z $nccl ]] || may_differ codes-on-nccl 240 "${with_nccl[@]}" "$build/tests/nccl_codes"
  step api-cost 150 "${on_path[@]}" "$build/tests/nccl_api_cost"
  if ((gpus > 1)) && has torch; then
    step torch-faults 420 "${with_own[@]}" env -u TUTTI_TIMEOUTS_OPERATION "$python" "$clients/torch_faults.py" \
      --expect tutti
  fi
  if has jax; then
    rm -f "$logs/jax.tutti"
    step jax 240 env TUTTI_LOG_LEVEL=info TUTTI_LOG_FILE="$logs/jax.tutti" "${with_own[@]}" "$python" \
      "$clients/jax_collectives.py" --expect tutti
  else
    lacks jax "no JAX in $python"
  fi
  ((gpus > 1)) || step like-shared-gpu 250 "$build/tests/nccl_like" --library "$own" -t 2 -n 20 -e 65536 --share
  for ranks in ${RANKS:-1 2 4 8}; do
    if ((ranks > gpus)); then
      [[ -n ${SHARE:-} ]] || { lacks "ranks-$ranks" "$gpus GPUs"; continue; }
      begin_sharing
    fi
    programs "$ranks"
    pytorch "$ranks"
    others "$ranks"
  done
fi

printf '\n==> summary\n'
printf '%s\n' "${table[@]}"
exit "$failed"
