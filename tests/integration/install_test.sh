#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs Tutti, builds the examples against what was installed alone, and runs them.
# Usage: install_test.sh BUILD_DIR [GPU_PROTOCOL NVCC]
# GPU_PROTOCOL: the folder of a protocol whose kernels are built, too.
set -euo pipefail
build=$1 gpu_protocol=${2:-} nvcc=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
for example in algo-chain algo-recursive net-unix_packet hello shrink; do
  cp -r "$work/prefix/share/tutti/examples/$example" "$work/$example" # nothing of the source tree is near
  cmake -S "$work/$example" -B "$work/$example/build" -G Ninja \
    -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" ||
    { cat "$work/configure.log"; exit 1; }
  cmake --build "$work/$example/build"
done

# Each kind of plugins has an example.
for kind in algo net proto tuner; do
  compgen -G "$work/prefix/share/tutti/examples/$kind-*/CMakeLists.txt" >/dev/null ||
    { echo "no example of a plugin of kind '$kind' is installed" && exit 1; }
done
[[ ! -e $work/prefix/share/tutti/examples/CMakeLists.txt ]] # that file is for the source tree

tutti=$work/prefix/bin/tutti

# The configuration files are installed, and this installation takes each of them.
for file in default.yaml single-host.yaml; do
  "$tutti" config check "$work/prefix/share/tutti/configs/$file"
done

# The package offers its own minor version and no other.
takes_version() {
  mkdir -p "$work/version"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(Version LANGUAGES C CXX)\nfind_package(Tutti %s REQUIRED)\n' \
    "$1" >"$work/version/CMakeLists.txt"
  cmake --fresh -S "$work/version" -B "$work/version/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
    >"$work/version.log" 2>&1
}
IFS=' .' read -r _ major minor patch < <("$tutti" --version)
for fits in "$major.$minor" "$major.$minor.$patch"; do
  takes_version "$fits" || { cat "$work/version.log"; exit 1; }
done
for other in "$major.$((minor + 1))" "$((major + 1)).$minor" "$major.$minor.$((patch + 1))"; do
  if takes_version "$other"; then
    echo "find_package(Tutti $other) takes version $major.$minor.$patch" && exit 1
  fi
  grep -q "version: $major.$minor.$patch" "$work/version.log" # found, and not accepted
done

chain=("--set" "plugins.path=[$work/algo-chain/build]" "--set" "plugins.algorithm=[ring, direct, chain]")
"$tutti" bench all_reduce --ranks 3 --min 8 --max 1M --factor 64 "${chain[@]}" --set algorithm=chain | tee "$work/table"
grep -q 'chain/' "$work/table"
grep -q 'wrong 0' "$work/table"
cmake --install "$work/algo-chain/build" --prefix "$work/prefix"
"$tutti" plugin list | grep "$work/prefix/lib/tutti/plugins/tutti-algo-chain.so"

# A vendor tests a network with the prefix alone.
"$tutti" plugin test socket --where process,processes --rule order --rule arm | tee "$work/conformance"
grep -q '4 passed, 0 failed, 0 skipped' "$work/conformance"

# A network in C builds without a compiler of C++, passes the kit and runs.
ctest --test-dir "$work/net-unix_packet/build" --output-on-failure
"$tutti" bench all_reduce --ranks 4 --min 8 --max 64K --factor 64 --hosts a,b --set network=unix_packet \
  --set "plugins.path=[$work/net-unix_packet/build]" | tee "$work/table"
grep -q 'wrong 0' "$work/table"

# `tutti plugin new` writes projects that build, pass the kit and run.
mkdir "$work/new"
for kind in algo net proto tuner; do
  "$tutti" plugin new "$kind" "demo_$kind" --into "$work/new" >"$work/new.log"
  project=$work/new/demo_$kind
  if grep -riE 'chain|unix_?stream|whole_?slots|fewest_?hops' "$project"; then
    echo "the project of kind $kind names the example it was made from" && exit 1
  fi
  cmake -S "$project" -B "$project/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" ||
    { cat "$work/configure.log"; exit 1; }
  cmake --build "$project/build"
  ctest --test-dir "$project/build" --output-on-failure
done
refuses() { # refuses TEXT CODE ARGUMENT...
  local text=$1 code=$2 found=0
  shift 2
  "$tutti" plugin new "$@" 2>"$work/refusal" || found=$?
  [[ $found == "$code" ]] && grep -qF "$text" "$work/refusal" || { cat "$work/refusal"; exit 1; }
}
refuses "there is no kind 'nett' of plugins; the kinds are algo, net, proto and tuner" 2 nett demo
refuses "'Demo' cannot name a plugin; a name is a-z, 0-9 and _, begins with a letter" 2 net Demo
refuses "'$work/new/demo_net' exists; remove it, or name another folder with --into" 1 net demo_net --into "$work/new"
refuses "cannot make the folder '$work/none/demo'" 1 net demo --into "$work/none"

demo() { # demo KIND PLUGINS OPTION...: runs a benchmark with the demo of a kind
  local kind=$1 list=$2
  shift 2
  "$tutti" bench all_reduce --ranks 4 --min 8 --max 64K --factor 64 --set "plugins.path=[$work/new/demo_$kind/build]" \
    --set "$list" "$@" | tee "$work/table"
  grep -q 'wrong 0' "$work/table"
}
demo algo 'plugins.algorithm=[ring, demo_algo]' --set algorithm=demo_algo
grep -q 'demo_algo/' "$work/table"
demo net 'plugins.network=[demo_net]' --set network=demo_net --hosts a,b
grep -q 'net-demo_net' "$work/table"
demo proto 'plugins.protocol=[simple, demo_proto]' --set protocol=demo_proto
grep -q 'demo_proto' "$work/table"
demo tuner 'plugins.tuner=[demo_tuner]'

# Kernels for GPUs build out of the tree, too. Without a GPU, the kit tests the plugin on the host.
if [[ -n $gpu_protocol ]]; then
  mkdir "$work/gpu"
  cp "$gpu_protocol"/plugin.cpp "$gpu_protocol"/kernels.cu.in "$gpu_protocol"/large_kernels.cu.in "$work/gpu/"
  cat >"$work/gpu/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(GpuProtocol LANGUAGES C CXX CUDA)
find_package(Tutti 0.1 REQUIRED)
tutti_add_plugin(proto ll VERSION $major.$minor.$patch SOURCES plugin.cpp
  LIBRARIES Tutti::host_kernels CUDA_ARCHITECTURES 90)
tutti_cuda_kernels(tutti-proto-ll kernels.cu.in large_kernels.cu.in)
END
  cmake -S "$work/gpu" -B "$work/gpu/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
    -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_ARCHITECTURES=90 >"$work/configure.log" ||
    { cat "$work/configure.log"; exit 1; }
  cmake --build "$work/gpu/build"
  "$tutti" plugin test "$work/gpu/build/tutti-proto-ll.so" | tee "$work/kit"
  grep -q ' 0 failed' "$work/kit"
  "$tutti" plugin list --set "plugins.path=[$work/gpu/build]" | grep "$work/gpu/build/tutti-proto-ll.so"
fi

"$work/hello/build/hello" | tee "$work/hello.out"
[[ $(grep -c 'the sum is 10' "$work/hello.out") == 4 ]]
"$work/shrink/build/shrink" | tee "$work/shrink.out"
[[ $(grep -c 'of 3: the sum is 6' "$work/shrink.out") == 3 ]]

# A missing plugin fails the configurations that name it, and nothing else.
find "$work/prefix" -name tutti-proto-ll.so -delete
if "$tutti" bench all_reduce --ranks 2 --min 8 --max 8 2>"$work/missing"; then
  echo "a missing plugin went unnoticed" && exit 1
fi
grep -q "TUTTI-P01.*'ll' not found" "$work/missing"
"$tutti" bench all_reduce --ranks 2 --min 8 --max 8 --set 'plugins.protocol=[simple]' | grep 'wrong 0'
echo "install test passed"
