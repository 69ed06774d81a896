. scratch/env.sh; P=$PWD/build/pack2
export LD_LIBRARY_PATH=$P/lib:$P/deps TUTTI_PLUGIN_PATH=$P/lib/tutti/plugins PATH=$P/bin:$PATH
mkdir -p $OUT
b() { # b NAME COLLECTIVE ARGS: bandwidth by size
  local name=$1 c=$2; shift 2
  printf "%-18s %-10s " "$name" "${c%% *}"; timeout 25 tutti bench $c -n 2 --threads --device cuda --graph --in-place no --no-check --set protocol=simple "$@" 2>/dev/null | awk '/^ *[0-9]/{printf "%s:%s ",$1/1048576,$8} END{print ""}'
}
big="--min 16M --max 1G --factor 8"
all=("send_recv" "broadcast" "reduce" "all_reduce --set algorithm=ring" "all_gather" "reduce_scatter")
use() { cp $P/v$1/tutti-proto-simple.so $P/lib/tutti/plugins/; }
use new; CUDA_MODULE_LOADING=EAGER timeout 60 matrix_test --gpus --ranks 2,3 --filter /simple/ 2>&1 | tail -2
for v in base new; do use $v
for c in "${all[@]}"; do for n in 64 32 16; do b $v-c$n "$c" --set channels=$n $big; done; done; done
for c in "${all[@]}"; do for n in 64 32 16; do b new-64Kx16-c$n "$c" --set channels=$n --set p2p.slot_size=64K --set p2p.slots=16 $big; done; done
use prof; for c in "${all[@]}"; do echo "== $c"; timeout 25 tutti bench $c -n 2 --threads --device cuda --in-place no --no-check --set protocol=simple --set channels=16 --min 128M --max 128M --warmup 1 --iters 1 2>&1 | grep -E "^(rank|loader|worker|storer|teller)" | tail -14; done > $OUT/prof.txt; wc -l $OUT/prof.txt
