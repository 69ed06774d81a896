. scratch/env.sh
mkdir -p $OUT; date +%T
timeout 100 python3 bench/gpu_vs_nccl.py --tutti build/pack/bin/tutti --library $NCCL --gpus 2 --factor 8 --max 1G --set plugins.tuner=[table] --set settings.tuner.table.file=$PWD/scratch/h200x2.yaml --out $OUT/cmp.md 2>&1 | tail -16
date +%T
export CUDA_MODULE_LOADING=EAGER
timeout 34 random_calls_test --gpus --ranks 2 --calls 10000 --seed 3718339569 > $OUT/random.log 2>&1; tail -1 $OUT/random.log
date +%T
timeout 12 random_calls_test --gpus --ranks 2 --calls 10000 --seed 592744234 > $OUT/random2.log 2>&1; tail -1 $OUT/random2.log
date +%T
