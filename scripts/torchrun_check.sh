#!/usr/bin/env bash
# Runs jobs of Tutti, and a program that joins by itself, under PyTorch's torchrun, on this machine.
# scripts/torchrun_check.sh [BUILD]     default: build/release
#
# Takes the torchrun of the PATH. If there is none, Debian's python3-torch is unpacked into build/torch (140 MB are
# downloaded, once); nothing is installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(realpath "${1:-build/release}")
readonly build unpacked=$PWD/build/torch

die() {
  echo "torchrun_check: $*" >&2
  exit 1
}

unpack() { # unpacks Debian's python3-torch, and the packages that it needs and this machine lacks
  [[ ! -e $unpacked/complete ]] || return 0
  command -v apt-get >/dev/null || die "torchrun is missing; install PyTorch"
  rm -rf "$unpacked"
  mkdir -p "$unpacked/packages/partial"
  apt-cache show python3-torch >/dev/null 2>&1 || apt-get update -qq || die "apt-get update failed"
  apt-get install -qq -y --no-install-recommends --download-only -o Debug::NoLocking=true \
    -o Dir::Cache::archives="$unpacked/packages" python3-torch >"$unpacked/log" 2>&1 ||
    { tail -n 5 "$unpacked/log" >&2 && die "Debian's python3-torch cannot be downloaded; install PyTorch"; }
  for package in "$unpacked"/packages/*.deb; do dpkg-deb -x "$package" "$unpacked"; done
  rm -rf "$unpacked/packages"
  touch "$unpacked/complete"
}

if command -v torchrun >/dev/null; then
  torchrun=(torchrun)
else
  unpack
  # PyTorch 1.13 with Python 3.11 fails unless a rank's output has a place; `-r 0:1 -t 0:1` also shows rank 0's output.
  torchrun=(env PYTHONPATH="$unpacked/usr/lib/python3/dist-packages"
    LD_LIBRARY_PATH="$unpacked/usr/lib/x86_64-linux-gnu:$unpacked/usr/lib"
    /usr/bin/python3 -m torch.distributed.run -r 0:1 -t 0:1)
fi
folder=$(mktemp -d)
output=$folder/output
trap 'rm -rf "$folder"' EXIT
export TUTTI_BOOTSTRAP_INTERFACE='[=lo]' OMP_NUM_THREADS=1 # torchrun warns if it sets the number of threads itself
TUTTI_ID_SECRET=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
export TUTTI_ID_SECRET
of_four() { # of_four PROGRAM ARGUMENT...: four ranks of a program of the build
  local program=$1
  shift
  printf '\ntorchrun_check: %s %s\n' "${program##*/}" "$*"
  timeout 120 "${torchrun[@]}" --nproc_per_node=4 --no_python -- "$build/$program" "$@" 2>&1 | tee "$output" ||
    die "the job failed"
  ! grep -q "has no secret" "$output" || die "the secret did not reach the ranks"
}
of_four bin/tutti bench all_reduce --min 8 --max 64K --factor 16
grep -q "all_reduce, 4 ranks as processes" "$output" || die "the job has no table of 4 ranks"
of_four bin/tutti tune --collectives all_reduce --max 4K --factor 64 --out "$folder/table.yaml"
grep -q "max_bytes" "$folder/table.yaml" || die "tutti tune wrote no entry"
of_four bin/tutti topo check configs/topologies/hgx-h200.yaml
[[ $(grep -c "plausible" "$output") == 1 ]] || die "one rank of the host must check the topology file"
of_four tests/launched
echo "torchrun_check: all jobs ended with code 0"
