#!/bin/bash
# A benchmark under Slurm, one rank for each GPU: sbatch --gpus-per-node=8 slurm.sh --device cuda
# Arguments go to `tutti bench all_reduce`; options of sbatch replace the lines below.
#SBATCH --nodes=2 --ntasks-per-node=8
set -euo pipefail
TUTTI_ID_SECRET=$(openssl rand -hex 16)
export TUTTI_ID_SECRET # srun passes it to the tasks
srun tutti bench all_reduce "$@"
