#!/usr/bin/env bash
# Runs `tutti bench all_reduce` under three launchers, on this machine: Open MPI's mpirun, Slurm's srun and torchrun.
# scripts/launchers_check.sh [BUILD]     default: build/release
#
# Needs root, Open MPI, PMIx and Slurm (./dev setup --all), and the target `launched`. See slurm_check.sh and
# torchrun_check.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build/release}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

# Open MPI 4.1 maps its copy of the topology at an address that it finds free (rtc_hwloc), which crashed in few runs.
echo "launchers_check: mpirun -n 4 tutti bench all_reduce"
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TUTTI_BOOTSTRAP_INTERFACE='[=lo]' \
  timeout 120 mpirun --mca rtc_hwloc_vmhole none --oversubscribe -n 4 \
  "$build/bin/tutti" bench all_reduce --min 8 --max 64K --factor 16 |
  tee "$output"
[[ $(grep -c "all_reduce, 4 ranks as processes" "$output") == 1 ]] ||
  { echo "launchers_check: mpirun did not start one job of 4 ranks" >&2 && exit 1; }
printf '\nlaunchers_check: srun and sbatch\n'
scripts/slurm_check.sh "$build"
printf '\nlaunchers_check: torchrun\n'
scripts/torchrun_check.sh "$build"
