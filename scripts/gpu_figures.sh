#!/usr/bin/env bash
# Measures the figures of the results page on the GPUs of this machine: scripts/gpu_figures.sh STEP...
#
# Steps:
#   build    the tool, plugins, tests and libnccl.so.2, in BUILD, by all processors
#   check    scripts/gpu_tests.sh within CHECK_S seconds (240)
#   tune     `tutti tune` on all GPUs; the table lies in OUT/GPUxN.yaml (h100x2.yaml) and serves the later steps
#   compare  bench/gpu_vs_nccl.py: every collective, in graphs and eagerly, beside NCCL
#   blocks   bench/gpu_blocks.py: bandwidth by thread blocks
#   start    time and device memory of communicators, beside NCCL
#   network  two pretended hosts over TCP on the loopback, beside NCCL's socket transport; scripts/gpu_network.sh
#   protocols  two pretended hosts over TCP on the loopback: small calls by each protocol, on 1 and on 4 channels
#   failover  calls between two pretended hosts over TCP while connections break; then calls without fail-over, with
#            net.failover and with check.data in turn, and the medians of three rounds
#   networks  several networks in one communicator
#   hosts    four ranks on two pretended hosts that share the GPUs, over TCP on the loopback: measures hardware figures,
#            then the median time by algorithm
#   pxn      messages that pass through memory of a second GPU: scripts/gpu_pxn.py; needs two GPUs
#   kit      `tutti plugin test`: the rules that need a GPU, also on plugins with a fault, which must be found;
#            scripts/nccl_net_check.sh
#   clients  scripts/clients_check.sh
#   versions bench/gpu_versions.py: an earlier build, BEFORE (its tutti), beside this build
# Environment: BUILD (build/cuda), OUT (a folder for tables and logs; a new one), GPUS (all), TUNE_S (125), MAX (4G),
# TABLE (the table that compare and versions follow, if no tune ran before them).
# Prints the tables. Exit code: 1 if a step failed, 77 if there is no GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
((gpus > 0)) || { echo "skipped: there is no GPU"; exit 77; }
build=${BUILD:-build/cuda}
out=${OUT:-$(mktemp -d)}
mkdir -p "$out"
chip=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | grep -oiE '[a-z]+[0-9]+[a-z]*' | head -n 1)
chip=${chip:-gpu}
table=${TABLE:-$out/${chip,,}x$gpus.yaml}
# NVLink's multicast is not for guests of a host whose GPUs are lent.
export NCCL_NVLS_ENABLE=0 PYTHONUNBUFFERED=1
library=$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null) ||
  library=$(ldconfig -p | awk '/libnccl.so.2/ { print $NF; exit }')
failed=0

build_all() {
  local options=(-DCMAKE_BUILD_TYPE=Release -DTUTTI_CUDA=ON -DTUTTI_EXAMPLES=ON -DTUTTI_BENCH=OFF)
  cmake -S . -B "$build" -G Ninja "${options[@]}" >"$out/cmake.log" 2>&1 || { tail -20 "$out/cmake.log"; return 1; }
  local tests=(matrix_test gpu_stress_test random_calls_test fault_registered_test fault_leave_gpu_test nccl_arguments
    lent_memory_test thread_stream_test break_sockets nccl_codes nccl_family nccl_like nccl_api_cost
    tutti-algo-recursive
    tutti-net-device tutti-net-device_flushed tutti-net-device_unflushed tutti-net-unix_stream tutti-proto-mock_cuda)
  ninja -C "$build" -k 0 product "${tests[@]}" >"$out/build.log" 2>&1 ||
    { grep -E "error|FAILED" "$out/build.log" | head -20; return 1; }
}
tuned() { [[ ! -e $table ]] || echo --set "plugins.tuner=[table]" --set "settings.tuner.table.file=$table"; }
tune() {
  timeout 300 "$build/bin/tutti" tune -n "$gpus" --threads --device cuda --register \
    --set "plugins.algorithm=[direct,ring]" --channels 1,4,8,16,32,64 --factor 4 --max 512M --limit "${TUNE_S:-125}" \
    --out "$table" >"$out/tune.log" 2>&1 || { tail -5 "$out/tune.log"; return 1; }
  echo "$table: $(grep -c max_bytes "$table") entries"
}
compare() {
  # shellcheck disable=SC2046
  timeout 560 python3 bench/gpu_vs_nccl.py --tutti "$build/bin/tutti" --library "$library" --gpus "$gpus" --factor 4 \
    --max "${MAX:-4G}" $(tuned) --out "$out/compare-$gpus.md" >"$out/compare.log" 2>&1
  local code=$?
  sed -n '/^### Geometric/,$p' "$out/compare-$gpus.md"
  awk -F'|' '/^### / { name = $0 }
    /^\| [0-9]/ && (($5 + 0 > 0 && $5 < 0.97) || ($8 + 0 > 0 && $8 < 0.97)) { print name ":" $0 }' \
    "$out/compare-$gpus.md"
  return "$code"
}
blocks() {
  # shellcheck disable=SC2046
  timeout 200 python3 bench/gpu_blocks.py --tutti "$build/bin/tutti" --library "$library" --gpus "$gpus" --graph \
    --collectives all_reduce all_gather reduce_scatter --blocks 8 16 32 >"$out/blocks-$gpus.md" 2>&1
  local code=$?
  cat "$out/blocks-$gpus.md"
  return "$code"
}
start() {
  timeout 100 "$build/bin/tutti" bench all_reduce -n "$gpus" --device cuda --in-place no --max 64K --factor 64 \
    --compare "$library" -v >"$out/start.log" 2>&1
  local code=$?
  grep -iE "start|memory|MiB" "$out/start.log" | cut -c 1-200
  return "$code"
}
# The kit must find the fault of a plugin: exit code 1, and the named rule is violated.
breaks() { # breaks RULE PLUGIN ARGUMENT...
  local rule=$1 output code
  shift
  output=$(timeout 250 "$build/bin/tutti" plugin test "$@" 2>&1)
  code=$?
  printf '%s\n' "$output"
  if ((code != 1)) || [[ $output != *"violates $rule "* ]]; then
    echo "FAILED: the kit must find that $1 breaks $rule; its exit code is $code"
    return 1
  fi
}
kit() {
  local name code=0
  for name in simple ll ll128 copy; do
    timeout 250 "$build/bin/tutti" plugin test "$name" --rule gpus || code=1
  done
  for name in device device_flushed; do
    timeout 100 "$build/bin/tutti" plugin test "$name" --rule device-memory --where process \
      --set "plugins.path=[$build/tests/networks]" || code=1
  done
  breaks NET-38 device_unflushed --rule device-memory --where process \
    --set "plugins.path=[$build/tests/networks]" || code=1
  local mock=$build/tests/conformance/tutti-proto-mock_cuda.so
  timeout 250 "$build/bin/tutti" plugin test "$mock" --rule gpus || code=1
  for name in wrong_product writes_before; do
    breaks PRO-18 "$mock" --rule gpus --set "settings.proto.mock_cuda.fault=$name" || code=1
  done
  NCCL_LIBRARY=$library scripts/nccl_net_check.sh "$build" || (($? == 77)) || code=1
  return "$code"
}
versions() {
  # shellcheck disable=SC2046
  timeout 560 python3 bench/gpu_versions.py --before "${BEFORE:?}" --after "$build/bin/tutti" --library "$library" \
    --gpus "$gpus" $(tuned) >"$out/versions-$gpus.md" 2>&1
  local code=$?
  cat "$out/versions-$gpus.md"
  return "$code"
}
network() {
  local collective code=0 sockets=(NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_NET=Socket)
  for collective in all_reduce all_gather broadcast send_recv; do
    env "${sockets[@]}" NCCL_SOCKET_IFNAME=lo timeout 120 "$build/bin/tutti" bench "$collective" -n 2 --device cuda \
      --hosts a,b --set network=socket --min 8 --max 64M --factor 8 --in-place no --compare "$library" \
      >"$out/network-$collective.log" 2>&1 || code=1
    grep -vE '^#( |$)' "$out/network-$collective.log" | cut -c 1-160
  done
  RANKS=2 LIMIT=60 timeout 240 scripts/gpu_network.sh "$build" >"$out/network.log" 2>&1 || code=1
  grep -E '^==|FAILED|counts' "$out/network.log"
  return "$code"
}
protocols() {
  local collective protocol channels code=0
  for collective in all_reduce all_gather broadcast send_recv; do
    for protocol in ll simple; do
      for channels in 1 4; do
        echo "== $collective, protocol $protocol, channels $channels"
        timeout 60 "$build/bin/tutti" bench "$collective" -n 2 --device cuda --hosts a,b --set network=socket \
          --set "protocol=$protocol" --set "channels=$channels" --min 8 --max 64K --factor 2 --in-place no \
          >"$out/protocols.log" 2>&1 || { code=1; tail -3 "$out/protocols.log"; }
        grep -vE '^#( |$)' "$out/protocols.log" | cut -c 1-120
      done
    done
  done
  return "$code"
}
failover() {
  local setting code=0 test=(python3 tests/fault/socket_break_test.py "$build/bin/tutti" "$build/tests/break_sockets.so"
    --device cuda)
  timeout 250 "${test[@]}" --repeat 3 || code=1
  timeout 250 "${test[@]}" --min 1M --max 64M --milliseconds 5 --repeat 5 --protocols simple || code=1
  TUTTI_PLUGIN_PATH=$build/tests/networks timeout 250 "${test[@]}" --min 1M --max 64M --further device \
    --protocols simple || code=1
  : >"$out/failover.times"
  for _ in 1 2 3; do
    for setting in net.failover=false net.failover=true check.data=true; do
      timeout 60 "$build/bin/tutti" bench all_reduce -n 2 --device cuda --hosts a,b --set network=socket --threads \
        --set "$setting" --min 8 --max 64M --factor 8 --in-place no >"$out/failover.log" 2>&1 ||
        { code=1; tail -3 "$out/failover.log"; }
      awk -v setting="$setting" '/^ +[0-9]/ { print $1, setting, $6 }' "$out/failover.log" >>"$out/failover.times"
    done
  done
  echo "bytes setting median_us"
  sort -k1,1n -k2,2 -k3,3n "$out/failover.times" | awk '
    $1 " " $2 != cell { cell = $1 " " $2; count = 0 }
    ++count == 2 { print }'
  return "$code"
}
hosts() {
  local collective algorithm code=0 figures=$out/hardware.yaml
  timeout 60 "$build/bin/tutti" tune --figures -n 4 --threads --hosts a,b --set network=socket --out "$figures" ||
    return 1
  cat "$figures"
  for collective in all_reduce all_gather reduce_scatter broadcast all_to_all; do
    echo "== $collective: size in bytes, then the median in us of each algorithm"
    for algorithm in auto direct ring tree hier; do
      timeout 60 "$build/bin/tutti" bench "$collective" -n 4 --threads --device cuda --hosts a,b --set network=socket \
        --set "hardware.file=$figures" --set "algorithm=$algorithm" --min 128 --max 8M --factor 16 --in-place no \
        >"$out/hosts.log" 2>&1 ||
        grep -q "does not offer $collective" "$out/hosts.log" || { code=1; tail -3 "$out/hosts.log"; }
      echo "$algorithm: $(awk '/^ +[0-9]/ { printf "%s %s  ", $1, $6 }' "$out/hosts.log")"
    done
  done
  return "$code"
}
networks() {
  local plugin code=0 mocks=tests/networks
  for plugin in examples/tutti-net-unix_stream $mocks/tutti-net-device $mocks/tutti-net-device_flushed; do
    timeout 200 python3 tests/integration/networks_test.py "$build/bin/tutti" "$build/$plugin.so" cuda || code=1
  done
  return "$code"
}

pxn() {
  local code=0
  timeout 400 python3 scripts/gpu_pxn.py "$build" 2>&1 || code=$?
  ((code == 0 || code == 77))
}

for step in "$@"; do
  begin=$SECONDS
  echo "==> $step"
  case $step in
    build) build_all || { echo "FAILED: build"; exit 1; } ;;
    check) LOGS=$out/check TOTAL=${CHECK_S:-240} scripts/gpu_tests.sh "$build" ;;
    tune | compare | blocks | start | network | networks | hosts) "$step" ;;
    pxn | protocols | failover | kit | versions) "$step" ;;
    clients) PREBUILT=1 RANKS="${RANKS:-1 2 4 8}" scripts/clients_check.sh "$build" ;;
    *) echo "there is no step '$step'"; exit 1 ;;
  esac || { failed=1; echo "FAILED: $step"; }
  echo "    $((SECONDS - begin)) s"
done
exit "$failed"
