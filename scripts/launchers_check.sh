#!/usr/bin/env bash
# Runs `tutti bench all_reduce`, `tutti tune` and `tutti topo check` under three launchers, on this machine: Open MPI's
# mpirun, Slurm's srun and torchrun. Then `tutti bench` starts ranks over ssh.
# scripts/launchers_check.sh [BUILD]     default: build/release
#
# Needs root, Open MPI, PMIx and Slurm (./dev setup --all), and the target `launched`. See slurm_check.sh,
# torchrun_check.sh and ssh_check.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
folder=$(mktemp -d)
output=$folder/output
trap 'rm -rf "$folder"' EXIT

die() {
  echo "launchers_check: $*" >&2
  exit 1
}
# Open MPI 4.1 maps its copy of the topology at an address that it finds free (rtc_hwloc), which crashed in few runs.
of_four() { # of_four ARGUMENT...: the command of four ranks
  printf '\nlaunchers_check: mpirun -n 4 tutti %s\n' "$*"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TUTTI_BOOTSTRAP_INTERFACE='[=lo]' \
    timeout 120 mpirun --mca rtc_hwloc_vmhole none --oversubscribe -n 4 "$build/bin/tutti" "$@" | tee "$output"
}
of_four bench all_reduce --min 8 --max 64K --factor 16
[[ $(grep -c "all_reduce, 4 ranks as processes" "$output") == 1 ]] || die "mpirun did not start one job of 4 ranks"
of_four tune --collectives all_reduce --max 4K --factor 64 --out "$folder/table.yaml"
grep -q "max_bytes" "$folder/table.yaml" || die "tutti tune wrote no entry"
of_four topo check configs/topologies/hgx-h200.yaml
[[ $(grep -c "plausible" "$output") == 1 ]] || die "one rank of the host must check the topology file"
printf '\nlaunchers_check: srun and sbatch\n'
scripts/slurm_check.sh "$build"
printf '\nlaunchers_check: torchrun\n'
scripts/torchrun_check.sh "$build"
printf '\nlaunchers_check: ssh\n'
scripts/ssh_check.sh "$build" || (($? == 77))
