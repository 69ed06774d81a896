. scratch/env.sh
export PYTHON=/opt/torch/.venv/bin/python; mkdir -p $OUT; T0=$SECONDS
say() { echo "== $((SECONDS-T0)) s: $*"; }
export CUDA_MODULE_LOADING=EAGER
timeout 30 fault_registered_test > $OUT/registered.log 2>&1; rc=$?; tail -3 $OUT/registered.log
if [ $rc != 0 ]; then cat $OUT/registered.log | tail -25 | cut -c1-200; timeout 25 cuda-gdb -batch -ex run -ex "bt 14" build/pack/bin/fault_registered_test 2>&1 | tail -25 | cut -c1-160; fi
timeout 40 matrix_test --gpus --ranks 2,3,4 2>&1 | tail -1
timeout 40 random_calls_test --gpus --ranks 2 --calls 10000 2>&1 | tail -1 | cut -c1-150
for t in shm net; do TUTTI_NETWORK=socket TUTTI_TRANSPORT=$t timeout 20 matrix_test --gpus --ranks 2,4 --max-count 70000 --filter /simple/ 2>&1 | tail -1; done
unset CUDA_MODULE_LOADING; say tune
timeout 60 tutti tune -n 2 --threads --device cuda --set plugins.algorithm=[direct,ring] --channels 1,4,16,32,64 --factor 8 --max 1G --limit 42 --out $OUT/h200x2.yaml 2>&1 | tail -1
say compare
timeout 90 python3 bench/gpu_vs_nccl.py --library $NCCL --tutti build/pack/bin/tutti --gpus 2 --factor 8 --max 1G --set plugins.tuner=[table] --set settings.tuner.table.file=$OUT/h200x2.yaml --out $OUT/cmp.md 2>&1 | tail -11
grep -E "^\| (16 MiB|128 MiB|1 GiB) |^###" $OUT/cmp.md
say blocks; timeout 40 python3 bench/gpu_blocks.py --library $NCCL --tutti build/pack/bin/tutti --graph --collectives all_reduce all_gather --blocks 4 8 16 32 --out $OUT/blocks.md 2>&1 | tail -20
say cost; timeout 15 tutti bench all_reduce -n 2 --device cuda --in-place no --max 64K --factor 64 --compare $NCCL -v 2>&1 | grep -E "communicator|device" | cut -c1-150
for c in all_reduce send_recv; do timeout 15 tutti bench $c -n 2 --device cuda --max 64K --factor 64 --launch 2>&1 | tail -4 | cut -c1-80; done
say faults; for k in watchdog killed aborted own_deadline; do timeout 60 env -u TUTTI_TIMEOUTS_OPERATION LD_PRELOAD=$P/lib/nccl/libnccl.so.2 $PYTHON tests/clients/torch_faults.py --expect tutti --case $k 2>&1 | tail -4 | cut -c1-200; done
say end
