. scratch/env.sh; P=$PWD/build/pack2
export LD_LIBRARY_PATH=$P/lib:$P/deps TUTTI_PLUGIN_PATH=$P/lib/tutti/plugins PATH=$P/bin:$PATH
mkdir -p $OUT
b() { # b NAME COLLECTIVE ARGS: bandwidth by size
  local name=$1 c=$2; shift 2
  printf "%-18s %-10s " "$name" "${c%% *}"; timeout 25 tutti bench $c -n 2 --threads --device cuda --graph --in-place no --no-check --set protocol=simple "$@" 2>/dev/null | awk '/^ *[0-9]/{printf "%s:%s ",$1/1048576,$8} END{print ""}'
}
big="--min 16M --max 1G --factor 8"
all=("send_recv" "broadcast" "reduce" "all_reduce --set algorithm=ring" "all_gather")
for v in base 12_2 12_4; do cp $P/v$v/tutti-proto-simple.so $P/lib/tutti/plugins/
for c in "${all[@]}"; do for n in 64 32 16; do b $v-c$n "$c" --set channels=$n $big; done; done; done
for c in "${all[@]}"; do for n in 32 16; do b 12_4-64Kx8-c$n "$c" --set channels=$n --set p2p.slot_size=64K --set p2p.slots=8 $big;  b 12_4-128Kx8-c$n "$c" --set channels=$n --set p2p.slot_size=128K --set p2p.slots=8 $big; done; done
