. scratch/env.sh
date +%T
CUDA_MODULE_LOADING=EAGER timeout 60 matrix_test --gpus --ranks 2 --filter simple 2>&1 | tail -6
date +%T
b() { timeout 60 tutti bench "$@" --device cuda -n 2 --in-place no --set protocol=simple 2>&1 | grep -v -E '^#|^$|^ *(size|bytes)' | cut -c1-150; }
for c in all_reduce all_gather all_to_all send_recv; do echo "== $c"; b $c --graph --min 2M --max 1G --factor 8; done
date +%T
for ch in 2 4 8 16 24; do for c in "all_reduce --set algorithm=ring" "broadcast" ; do echo "== $c ch $ch"; b $c --min 256M --max 256M --set channels=$ch; done; done
date +%T
