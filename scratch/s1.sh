. scratch/env.sh
export PYTHON=/opt/torch/.venv/bin/python; mkdir -p $OUT/logs; date +%T
export CUDA_MODULE_LOADING=EAGER TUTTI_TIMEOUTS_OPERATION=8s
for s in 3718339569 592744234; do echo "== random $s"; timeout 40 random_calls_test --gpus --ranks 2 --calls 10000 --seed $s > $OUT/random_$s.log 2>&1; tail -2 $OUT/random_$s.log | cut -c1-300; done
date +%T
for t in shm net; do for p in simple ll/ ll128; do echo "== matrix $t $p"; TUTTI_NETWORK=socket TUTTI_TRANSPORT=$t timeout 45 matrix_test --gpus --ranks 2,4 --max-count 70000 --filter /$p > $OUT/matrix_$t_${p%/}.log 2>&1; tail -2 $OUT/matrix_$t_${p%/}.log | cut -c1-300; done; done
unset CUDA_MODULE_LOADING
date +%T; for c in all_reduce all_gather send_recv; do TUTTI_TIMEOUTS_OPERATION=8s timeout 30 tutti bench $c -n 2 --device cuda --hosts a,b --set network=socket --max 16M --factor 32 2>&1 | tail -8; done
date +%T; echo "== launch"; for c in all_reduce send_recv; do timeout 25 tutti bench $c -n 2 --threads --device cuda --max 64K --factor 64 --launch 2>&1 | tail -4; timeout 25 tutti bench $c -n 2 --device cuda --max 64K --factor 64 --launch 2>&1 | tail -4; done
date +%T; timeout 170 bash scratch/clients_prebuilt.sh build/pack 'family|torch-collectives-2-eager$|torch-faults|cupy-2|jax' 2>&1 | grep -v -E '^ |^$' | tail -30 | cut -c1-200; cp build/pack/clients/*.log $OUT/logs/
tar czf $OUT/logs.tgz -C $OUT logs $(cd $OUT; ls *.log); rm -rf $OUT/logs $OUT/*.log; date +%T
