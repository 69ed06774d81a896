#!/usr/bin/env bash
# Builds for the GPUs of this machine and checks every collective on them: scripts/gpu_check.sh [BUILD_FOLDER] [ARGS]
# ARGS go to matrix_test, in place of the defaults.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-/tmp/tutti-gpu}
shift || true
options=(-DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=ON -DTUTTI_EXAMPLES=OFF -DTUTTI_BENCH=OFF)
cmake -S . -B "$build" "${options[@]}" >"$build.cmake.log" 2>&1 ||
  { tail -20 "$build.cmake.log"; exit 1; }
plugins=$(make -C "$build" help | grep -oE 'tutti-(algo|proto|net|tuner)-[a-z0-9]+$' | sort -u)
make -C "$build" -k -j"$(nproc)" matrix_test tutti_tool $plugins >"$build.make.log" 2>&1 ||
  { grep -E "error|Error" "$build.make.log" | head -20; exit 1; }
# Ranks that share a GPU must not wait for each other's kernels to be loaded, nor share queues of the hardware.
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32 TUTTI_TIMEOUTS_OPERATION=${TUTTI_TIMEOUTS_OPERATION:-5s}
args=("$@")
((${#args[@]})) || args=(--gpus --ranks 1,2,4 --max-count 70000)
"$build/tests/matrix_test" "${args[@]}"
