. scratch/env.sh
date +%T
export CUDA_MODULE_LOADING=EAGER
timeout 100 matrix_test --gpus --ranks 2,3,4 2>&1 | tail -8
date +%T
timeout 60 random_calls_test --gpus --ranks 2 --calls 1500 2>&1 | tail -4
date +%T
unset CUDA_MODULE_LOADING
b() { timeout 60 tutti bench "$@" --device cuda -n 2 --in-place no 2>&1 | grep -v -E '^#|^$|^ *(size|bytes)' | awk '{print $1,$6,$7,$8,$9,$NF,$(NF-1)}'; }
for c in all_reduce all_gather reduce_scatter broadcast all_to_all send_recv; do for ch in 32 64; do echo "== $c $ch"; b $c --graph --min 2M --max 1G --factor 8 --set protocol=simple --set channels=$ch ; done; done
date +%T
for a in "algorithm=ring" "algorithm=direct"; do for ch in 8 16 32 64; do echo "== all_reduce $a $ch"; b all_reduce --min 256M --max 256M --set protocol=simple --set channels=$ch --set $a; done; done
timeout 60 tutti bench all_reduce -n 2 --device cuda --graph --min 8 --max 64K --factor 8 --in-place no -v | cut -c1-160
date +%T
