. scratch/env.sh
export CUDA_MODULE_LOADING=EAGER; mkdir -p $OUT
export TUTTI_TIMEOUTS_OPERATION=20s
(timeout 60 random_calls_test --gpus --ranks 2 --calls 10000 --seed 3718339569 > $OUT/random.log 2>&1; head -c 1500 $OUT/random.log; tail -5 $OUT/random.log)
timeout 40 random_calls_test --gpus --ranks 2 --calls 10000 --streams 1 --seed 7 2>&1 | tail -3
export TUTTI_TIMEOUTS_OPERATION=20s
TOOLS="racecheck" ALGORITHMS="direct/two-shot" PROTOCOLS=simple TOTAL=15 LIMIT=15 LOGS=$OUT/san timeout 30 bash scripts/gpu_sanitize.sh build/pack 2>&1 | tail -3
for f in $OUT/san/*; do echo $f; grep -E "ERROR|Race|hazard|Write|Read|at " $f | head -30; done | cut -c1-220 | head -60
