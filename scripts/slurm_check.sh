#!/usr/bin/env bash
# Runs jobs of Tutti under a real Slurm of one node, on this machine: srun with PMIx, with its variables alone, and the
# batch file of examples/deploy.
# scripts/slurm_check.sh [BUILD]     default: build/release
#
# Needs root and the packages munge, slurmctld, slurmd and slurm-client. All files of the daemons lie in a temporary
# folder, and the daemons end with the script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$(realpath "${1:-build/release}")
readonly build

die() {
  echo "slurm_check: $*" >&2
  exit 1
}
for tool in munged slurmctld slurmd srun; do
  command -v "$tool" >/dev/null || die "$tool is missing; install munge, slurmctld, slurmd and slurm-client"
done
((EUID == 0)) || die "needs root for slurmd"

folder=$(mktemp -d)
daemons=()
end() {
  for daemon in "${daemons[@]}"; do kill "$daemon" 2>/dev/null || true; done
  for daemon in "${daemons[@]}"; do wait "$daemon" 2>/dev/null || true; done
  rm -rf "$folder"
}
trap end EXIT
chmod 755 "$folder"
mkdir -m 755 "$folder/run" "$folder/state" "$folder/spool"
host=$(hostname -s)

wait_for() { # wait_for SECONDS COMMAND...: until the command succeeds
  local deadline=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < deadline)) || { tail -n 5 "$folder"/*.log >&2 && die "'$*' did not succeed in time"; }
    sleep 0.2
  done
}

head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 600 "$folder/munge.key"
munged --foreground --force --key-file="$folder/munge.key" --socket="$folder/run/munge" \
  --pid-file="$folder/run/munge.pid" --log-file="$folder/munge.log" --seed-file="$folder/munge.seed" --num-threads=2 \
  >"$folder/munged.log" 2>&1 &
daemons+=($!)
wait_for 10 test -S "$folder/run/munge"

cat >"$folder/slurm.conf" <<END
ClusterName=tutti
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge
CryptoType=crypto/munge
SlurmctldPort=27817
SlurmdPort=27818
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.pid
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
ReturnToService=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc)
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
END
export SLURM_CONF=$folder/slurm.conf
slurmctld -D -f "$SLURM_CONF" >"$folder/slurmctld.log" 2>&1 &
daemons+=($!)
slurmd -D -f "$SLURM_CONF" >"$folder/slurmd.log" 2>&1 &
daemons+=($!)
wait_for 30 bash -c "sinfo -h -o %T | grep -q idle"

ranks=$(nproc)
run() { # run TITLE COMMAND...
  printf '\nslurm_check: %s\n' "$1"
  shift
  timeout 120 "$@"
}
export TUTTI_BOOTSTRAP_INTERFACE='[=lo]'
run "srun --mpi=pmix" srun --mpi=pmix --overcommit -n 4 "$build/bin/tutti" bench all_reduce --min 8 \
  --max 64K --factor 16
TUTTI_ID_SECRET=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n') \
  run "srun without PMIx, with a secret" srun --mpi=none -n "$ranks" "$build/bin/tutti" bench all_gather --min 1K \
  --max 64K --factor 16
run "tutti tune" srun --mpi=pmix --overcommit -n 4 "$build/bin/tutti" tune --collectives all_reduce --max 4K \
  --factor 64 --out "$folder/table.yaml"
grep -q "max_bytes" "$folder/table.yaml" || die "tutti tune wrote no entry"
run "tutti topo check" srun --mpi=pmix --overcommit -n 4 "$build/bin/tutti" topo check \
  configs/topologies/hgx-h200.yaml | tee "$folder/checked" || die "tutti topo check failed"
[[ $(grep -c "plausible" "$folder/checked") == 1 ]] || die "one rank of the host must check the topology file"
run "a program that joins by itself" srun --mpi=pmix -n "$ranks" "$build/tests/launched"
run "sbatch of examples/deploy/slurm.sh" env PATH="$build/bin:$PATH" sbatch --quiet --wait --nodes=1 \
  --ntasks-per-node="$ranks" --output="$folder/batch" examples/deploy/slurm.sh --min 1K --max 64K --factor 16 ||
  { cat "$folder/batch" >&2 && die "the batch job failed"; }
cat "$folder/batch"
grep -q "all_reduce, $ranks ranks as processes" "$folder/batch" || die "the batch job has no table of $ranks ranks"
! grep -q "has no secret" "$folder/batch" || die "the batch job has no secret"
echo "slurm_check: all jobs ended with code 0"
