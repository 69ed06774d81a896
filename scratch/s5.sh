P=$PWD/build/pack2; . scratch/env.sh; P=$PWD/build/pack2
export LD_LIBRARY_PATH=$P/lib:$P/deps TUTTI_PLUGIN_PATH=$P/lib/tutti/plugins PATH=$P/bin:$PATH
mkdir -p $OUT
gpu_limits
b() { # b NAME COLLECTIVE ARGS: bandwidth by size
  local name=$1 c=$2; shift 2
  printf "%-26s %-10s " "$name" "${c%% *}"; timeout 25 tutti bench $c -n 2 --threads --device cuda --graph --in-place no --no-check --set protocol=simple "$@" 2>/dev/null | awk '/^ *[0-9]/{printf "%s:%s ",$1/1048576,$8} END{print ""}'
}
big="--min 16M --max 1G --factor 8"
for c in send_recv broadcast reduce; do
b odd $c --set channels=64 --min 700000000 --max 1400000001 --factor 2
b base64 $c --set channels=64 $big
b slots32 $c --set channels=64 --set p2p.slots=32 $big
b slot64K $c --set channels=64 --set p2p.slot_size=64K $big
b slot128Kx8 $c --set channels=64 --set p2p.slot_size=128K --set p2p.slots=8 $big
b slot16K $c --set channels=64 --set p2p.slot_size=16K --set p2p.slots=32 $big
b base16 $c --set channels=16 $big
b slot64Kc16 $c --set channels=16 --set p2p.slot_size=64K $big
done
mv $P/lib/tutti/plugins/tutti-proto-simple.so $P/base.so; cp $P/v4/tutti-proto-simple.so $P/lib/tutti/plugins/
for c in send_recv broadcast reduce "all_reduce --set algorithm=ring" all_gather; do
b 4storers $c --set channels=64 $big
b 4storers-c32 $c --set channels=32 $big
b 4storers-c16 $c --set channels=16 $big
done
cp $P/base.so $P/lib/tutti/plugins/tutti-proto-simple.so
for c in "all_reduce --set algorithm=ring" all_gather; do for n in 64 32 16; do b base$n $c --set channels=$n $big; done; done
