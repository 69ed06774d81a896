. scratch/env.sh
export PYTHON=/opt/torch/.venv/bin/python; mkdir -p $OUT/logs; date +%T
export CUDA_MODULE_LOADING=EAGER
for s in 3718339569 592744234 11 12; do timeout 50 random_calls_test --gpus --ranks 2 --calls 10000 --seed $s > $OUT/random_$s.log 2>&1; tail -1 $OUT/random_$s.log | cut -c1-200; done
timeout 40 matrix_test --gpus --ranks 2,3,4 2>&1 | tail -1
unset CUDA_MODULE_LOADING; date +%T
timeout 60 bash scratch/clients_prebuilt.sh build/pack 'family' 2>&1 | grep -v '^ ' | tail -5 | cut -c1-200; cat build/pack/clients/family.log | tail -5
date +%T; for c in all_reduce send_recv; do timeout 25 tutti bench $c -n 2 --device cuda --max 64K --factor 64 --launch 2>&1 | tail -4 | cut -c1-150; done
for ch in 16 32 64; do for e in "" ; do printf "send_recv ch $ch: "; timeout 25 tutti bench send_recv -n 2 --device cuda --graph --no-check --min 2M --max 1G --factor 8 --set protocol=simple --set channels=$ch 2>/dev/null | awk '/^ *[0-9]/{printf "%s ",$6} END{print ""}'; done; done
date +%T
timeout 110 tutti tune -n 2 --threads --device cuda --set plugins.algorithm=[direct,ring] --channels 1,4,16,32,64 --factor 8 --max 1G --limit 85 --out $OUT/h200x2.yaml 2>&1 | tail -3
date +%T
timeout 165 python3 bench/gpu_vs_nccl.py --library $NCCL --tutti build/pack/bin/tutti --gpus 2 --factor 8 --max 1G --set plugins.tuner=[table] --set settings.tuner.table.file=$OUT/h200x2.yaml --out $OUT/cmp.md 2>&1 | tail -12
cat $OUT/cmp.md | grep -E "^\| (16 MiB|128 MiB|1 GiB|2 MiB|8 B|32 KiB) |^###"
date +%T
