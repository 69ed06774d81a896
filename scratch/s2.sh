. scratch/env.sh
mkdir -p $OUT; export CUDA_MODULE_LOADING=EAGER
look() { # look PID FILE
  timeout 45 cuda-gdb -batch -p $1 -ex "set pagination off" -ex "info cuda kernels" -ex "thread apply all bt 14" > $2 2>&1
  grep -A30 "Kernel Parent" $2 | cut -c1-230 | head -12
}
date +%T
random_calls_test --gpus --ranks 2 --calls 10000 --seed 3718339569 > $OUT/r1.log 2>&1 & pid=$!
sleep 9; kill -0 $pid && look $pid $OUT/gdb_random.txt; kill -9 $pid; date +%T
for i in 1 2; do timeout 14 random_calls_test --gpus --ranks 2 --seed 3718339569 --round 16 > $OUT/r2.log 2>&1; echo "round 16 alone: rc $?"; done
export CUDA_DEVICE_MAX_CONNECTIONS=32
timeout 12 random_calls_test --gpus --ranks 2 --calls 10000 --seed 3718339569 > $OUT/r3.log 2>&1; echo "32 connections: rc $?"; tail -1 $OUT/r3.log | cut -c1-200
unset CUDA_DEVICE_MAX_CONNECTIONS; date +%T
TUTTI_TIMEOUTS_OPERATION=40s build/pack/tests/nccl_family > $OUT/family.log 2>&1 & pid=$!
sleep 9; kill -0 $pid && look $pid $OUT/gdb_family.txt; kill -9 $pid; cat $OUT/family.log; date +%T
CUDA_DEVICE_MAX_CONNECTIONS=32 timeout 15 build/pack/tests/nccl_family; echo rc $?
date +%T; echo "== hosts"; for c in all_reduce all_gather; do for a in ring tree; do timeout 25 tutti bench $c -n 4 --device cuda --hosts a,a,b,b --set network=socket --set algorithm=$a --min 64K --max 16M --factor 16 2>&1 | tail -4 | cut -c1-160; done; done; date +%T
