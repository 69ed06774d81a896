. scratch/env.sh
export PYTHON=/opt/torch/.venv/bin/python
mkdir -p $OUT/logs; date +%T
timeout 110 bash scratch/clients_prebuilt.sh build/pack 'one-rank|^codes$|family|api-cost|torch-collectives-2$' 2>&1 | tail -60
cp build/pack/clients/*.log $OUT/logs/ 2>/dev/null
date +%T; echo "== kill"; timeout 70 python3 tests/fault/kill_test.py build/pack/bin/tutti --gpus 2>&1 | tail -12
date +%T; echo "== replays"; export CUDA_MODULE_LOADING=EAGER
timeout 60 random_calls_test --gpus --ranks 2 --graphs-only --replays 1000 --calls 6000 --max-bytes 65536 2>&1 | tail -3
timeout 60 random_calls_test --gpus --ranks 2 --calls 10000 2>&1 | tail -3
date +%T; echo "== sanitizer"; export TUTTI_TIMEOUTS_OPERATION=20s
TOOLS="memcheck racecheck" ALGORITHMS="direct/two-shot" TOTAL=45 LIMIT=20 timeout 50 bash scripts/gpu_sanitize.sh build/pack 2>&1 | tail -12
date +%T
