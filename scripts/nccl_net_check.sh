#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs NCCL's own library over libnccl-net-tutti.so on two GPUs of this machine, without paths between the GPUs:
#   scripts/nccl_net_check.sh BUILD_FOLDER
# BUILD_FOLDER: a build with CUDA, with the targets nccl_like, tutti_nccl_net and the plugins. Logs stay in
# BUILD_FOLDER/nccl_net.
# NCCL_LIBRARY: NCCL's libnccl.so.2; otherwise the file of PYTHON's packages, of /usr/local/cuda, or of the system.
# NETWORKS: the networks to try (socket). Exit code 0: all results are right, and NCCL used the plugin. 77: there is no
# NCCL, or one GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
build=$(cd "${1:?names no build folder}" && pwd) || exit 1
python=${PYTHON:-python3}
plugin=$build/lib/libnccl-net-tutti.so
program=$build/tests/nccl_like
logs=$build/nccl_net
mkdir -p "$logs"
for file in "$plugin" "$program"; do
  [[ -e $file ]] || { echo "there is no $file; build the targets nccl_like and tutti_nccl_net" >&2; exit 1; }
done

find_nccl() {
  "$python" -c 'import nvidia.nccl as n; print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null && return
  local folder
  for folder in /usr/local/cuda/lib64 /usr/lib/x86_64-linux-gnu; do
    [[ -e $folder/libnccl.so.2 ]] && echo "$folder/libnccl.so.2" && return
  done
}
nccl=${NCCL_LIBRARY:-$(find_nccl)}
gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU') || gpus=0
if [[ -z $nccl || $gpus -lt 2 ]]; then
  echo "skipped: NCCL's library is '$nccl', and there are $gpus GPUs"
  exit 77
fi

# The GPUs reach each other only over the network. NVLink's multicast is off, as guests cannot use it.
export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_NVLS_ENABLE=0 NCCL_DEBUG=INFO NCCL_NET_PLUGIN=$plugin
failed=0

run() { # run NAME: the program over NCCL, with the log in NAME.log
  timeout -k 10 200 "$program" --library "$nccl" -p 2 -b 1024 -e 16777216 -n 20 >"$logs/$1.log" 2>&1
}
told() { # told NAME PATTERN...: each pattern is in the log
  local log=$logs/$1.log pattern
  shift
  for pattern; do
    grep -aqE "$pattern" "$log" || { echo "no line of $log has: $pattern"; return 1; }
  done
}
report() { # report NAME RESULT
  echo "$1: $2"
  [[ $2 == passed ]] && return
  failed=1
  grep -aE 'NET/|WARN|WRONG|wrong' "$logs/$1.log" | head -20 | cut -c1-200
  tail -5 "$logs/$1.log" | cut -c1-200
}

for network in ${NETWORKS:-socket}; do
  if TUTTI_NET=$network NCCL_NET=Tutti run "$network" &&
    told "$network" "NET/Tutti : network '$network'" 'via NET/Tutti/'; then
    report "$network" passed
  else
    report "$network" FAILED
  fi
done

# If the network cannot serve, NCCL says why and takes its own.
if TUTTI_NET=nonsense run fallback &&
  told fallback "NET/Tutti : .*network plugin 'nonsense' not found" 'via NET/(Socket|IB)/'; then
  report fallback passed
else
  report fallback FAILED
fi
exit "$failed"
