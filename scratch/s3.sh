P=$PWD/build/pack_dbg
export LD_LIBRARY_PATH=$P/lib:$P/deps TUTTI_PLUGIN_PATH=$P/lib/tutti/plugins PATH=$P/bin:$PATH CUDA_MODULE_LOADING=EAGER
mkdir -p $OUT
timeout 45 random_calls_test --gpus --ranks 2 --calls 250 --seed 3718339569 > $OUT/a.log 2>&1; echo rc $?; grep -v "^r[01] [PM]" $OUT/a.log | cut -c1-200 | tail -8; tail -60 $OUT/a.log | cut -c1-220
timeout 15 random_calls_test --gpus --ranks 2 --calls 250 --seed 3718339569 --streams 1 > $OUT/b.log 2>&1; echo rc $?; tail -2 $OUT/b.log | cut -c1-200
gzip $OUT/*.log
