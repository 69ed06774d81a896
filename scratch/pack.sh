#!/bin/bash
# pack.sh BUILD: what the device needs, prebuilt
set -e
cd /work/main; B=${1:-/tmp/wt/build/release}; P=build/pack
rm -rf $P; mkdir -p $P/bin $P/lib/tutti/plugins $P/deps
cp $B/bin/tutti $P/bin/; cp -a $B/lib/libtutti.so* $P/lib/ 2>/dev/null || true; cp $B/lib/tutti/plugins/tutti-{algo,net,proto,tuner}*.so $P/lib/tutti/plugins/
cp $B/tests/matrix_test $B/tests/random_calls_test $P/bin/; mkdir -p $P/tests; cp $B/tests/nccl_* $P/tests/
[ -f $B/lib/nccl/libnccl.so.2 ] && mkdir -p $P/lib/nccl && cp -aL $B/lib/nccl/libnccl.so.2 $P/lib/nccl/
for l in yaml-cpp.so.0.7 spdlog.so.1.10 fmt.so.9 hwloc.so.15 pugixml.so.1; do cp -L /lib/x86_64-linux-gnu/lib$l $P/deps/; done
strip $P/bin/* $P/lib/tutti/plugins/*.so $P/lib/libtutti.so.0.1.0 2>/dev/null || true
du -sh $P; ls -la $P/lib/tutti/plugins $P/bin | awk '{print $5,$9}'
