. scratch/env.sh
export PYTHON=/opt/torch/.venv/bin/python; mkdir -p $OUT/logs; T0=$SECONDS
say() { echo "== $((SECONDS-T0)) s: $*"; }
export CUDA_MODULE_LOADING=EAGER
say registered; (cd build/pack && timeout 45 bin/fault_registered_test 2>&1 | grep -E "^\[ *(OK|FAILED|PASSED)|Failure|rror" | head -30)
timeout 30 matrix_test --seed 1 --gpus --ranks 1,2 --max-count 70000 > $OUT/m.log 2>&1; tail -1 $OUT/m.log; grep -m3 -A3 FAILED $OUT/m.log | cut -c1-300
timeout 30 random_calls_test --gpus --ranks 2 --calls 5000 2>&1 | tail -1 | cut -c1-200
unset CUDA_MODULE_LOADING; say bench
for c in all_gather all_to_all broadcast; do for g in --graph ""; do timeout 20 tutti bench $c -n 2 --device cuda --register --set protocol=copy --in-place no --min 16M --max 1G --factor 8 $g 2>&1 | tail -4 | cut -c1-150; done; done
say compare; for c in all_gather all_to_all; do timeout 30 tutti bench $c -n 2 --device cuda --graph --register --in-place no --min 16M --max 1G --factor 8 --compare $NCCL 2>&1 | tail -6 | cut -c1-190; done
say kill; timeout 30 python3 tests/fault/kill_test.py build/pack/bin/tutti --gpus 2>&1 | tail -3 | cut -c1-200
say clients; timeout 130 bash scratch/clients_prebuilt.sh build/pack '^codes$|^cupy-2|^jax|torch-faults|codes-on-nccl' 2>&1 | grep -E '^(passed|FAILED|LATE|skipped) ' | cut -c1-180; cp build/pack/clients/*.log build/pack/clients/*.tutti $OUT/logs/ 2>/dev/null
tar czf $OUT/logs.tgz -C $OUT logs m.log; rm -rf $OUT/logs $OUT/m.log; say end
