. scratch/env.sh
export PYTHON=/opt/torch/.venv/bin/python; mkdir -p $OUT/logs; date +%T
export CUDA_MODULE_LOADING=EAGER
timeout 60 matrix_test --gpus --ranks 2,3,4 2>&1 | tail -3
timeout 45 random_calls_test --gpus --ranks 2 --calls 10000 --seed 3718339569 > $OUT/random.log 2>&1; tail -1 $OUT/random.log
timeout 45 random_calls_test --gpus --ranks 2 --calls 10000 2>&1 | tail -1
unset CUDA_MODULE_LOADING
date +%T; timeout 20 build/pack/bin/gpu_limits
echo "== fine or not, in turn"
T=tutti
for i in 1 2; do for t in tutti tutti_fine; do for c in "all_reduce --set algorithm=ring" all_gather send_recv; do printf "%s %s: " $t "$c"; timeout 20 $t bench $c -n 2 --threads --device cuda --graph --in-place no --no-check --min 512K --max 16M --factor 2 --set protocol=simple --set channels=64 2>/dev/null | awk '/^ *[0-9]/{printf "%s ",$6} END{print ""}'; done; done; done | tee $OUT/fine.txt
awk '{for(i=NF-5;i<=NF;i++) s[$1]+=log($i)} END{print (s["tutti_fine"]<s["tutti"]-0.3)?"tutti_fine":"tutti", s["tutti"], s["tutti_fine"]}' $OUT/fine.txt | tee scratch/which_line; cut -d" " -f1 scratch/which_line > scratch/which
date +%T; timeout 40 tutti bench all_reduce -n 2 --device cuda --in-place no --max 64K --factor 64 --compare $NCCL -v 2>&1 | grep -E "communicator|device" | cut -c1-150
date +%T; timeout 60 bash scratch/clients_prebuilt.sh build/pack 'family|torch-collectives-2$' 2>&1 | grep -v -E '^ |^$' | tail -30 | cut -c1-200; cp build/pack/clients/*.log $OUT/logs/
date +%T
W=$(cat scratch/which 2>/dev/null || echo tutti)
timeout 100 $W tune -n 2 --threads --device cuda --set plugins.algorithm=[direct,ring] --channels 1,4,16,32,64 --factor 8 --max 1G --limit 85 --out $OUT/h200x2.yaml 2>&1 | tail -3
date +%T
timeout ${CMP:-165} python3 bench/gpu_vs_nccl.py --tutti build/pack/bin/$W --gpus 2 --factor 8 --max 1G --set plugins.tuner=[table] --set settings.tuner.table.file=$OUT/h200x2.yaml --out $OUT/cmp.md 2>&1 | tail -30
date +%T
