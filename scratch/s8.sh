. scratch/env.sh; P=$PWD/build/pack2
export LD_LIBRARY_PATH=$P/lib:$P/deps TUTTI_PLUGIN_PATH=$P/lib/tutti/plugins PATH=$P/bin:$PATH
mkdir -p $OUT
b() { # b NAME COLLECTIVE ARGS: bandwidth by size
  local name=$1 c=$2; shift 2
  printf "%-18s %-10s " "$name" "${c%% *}"; timeout 25 tutti bench $c -n 2 --threads --device cuda --graph --in-place no --no-check --set protocol=simple "$@" 2>/dev/null | awk '/^ *[0-9]/{printf "%s:%s(%s) ",$1/1048576,$8,$6} END{print ""}'
}
all=("send_recv" "broadcast" "reduce" "all_reduce --set algorithm=ring" "all_reduce --set algorithm=direct/two-shot" "all_gather" "reduce_scatter")
cp $P/vnew/tutti-proto-simple.so $P/lib/tutti/plugins/
CUDA_MODULE_LOADING=EAGER timeout 60 matrix_test --gpus --ranks 2,3 --filter /simple/ 2>&1 | tail -1
CUDA_MODULE_LOADING=EAGER timeout 30 random_calls_test --gpus --ranks 2 --calls 5000 2>&1 | tail -1
for c in "${all[@]}"; do for s in "" "--set p2p.slot_size=64K" "--set p2p.slot_size=64K --set p2p.slots=8"; do for n in 64 32 16; do b "new$(echo $s | tr -dc '0-9K,')-c$n" "$c" --set channels=$n --min 2M --max 1G --factor 8 $s; done; done; done
