. scratch/env.sh
date +%T
b() { timeout 60 tutti bench "$@" --device cuda -n 2 --in-place no --set plugins.protocol=[simple] 2>&1 | grep -v -E '^#|^$|^ *(size|bytes)' | awk '{print $1,$6,$7,$8,$9,$NF,$(NF-1)}'; }
for c in all_reduce "all_reduce --set algorithm=ring" all_gather all_to_all send_recv reduce_scatter; do echo "== $c"; b $c --graph --min 2M --max 1G --factor 8; done
date +%T
for ch in 2 4 8 16; do for c in "all_reduce --set algorithm=ring" "broadcast" all_gather; do echo "== $c ch $ch"; b $c --min 256M --max 256M --set channels=$ch; done; done
date +%T
for s in 96K 192K; do for c in "all_reduce --set algorithm=ring" "broadcast" all_gather; do echo "== $c slot $s ch 16"; b $c --min 256M --max 256M --set channels=16 --set p2p.slot_size=$s; done; done
