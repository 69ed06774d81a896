#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs Tutti, builds the examples against what was installed alone, and runs them.
# Usage: install_test.sh BUILD_DIR SOURCE_DIR
set -euo pipefail
build=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
for example in algo-chain algo-recursive hello; do
  cp -r "$source/examples/$example" "$work/$example" # nothing of the source tree is near
  cmake -S "$work/$example" -B "$work/$example/build" -G Ninja \
    -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log" ||
    { cat "$work/configure.log"; exit 1; }
  cmake --build "$work/$example/build"
done

tutti=$work/prefix/bin/tutti

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

"$work/hello/build/hello" | tee "$work/hello.out"
[[ $(grep -c 'the sum is 10' "$work/hello.out") == 4 ]]

# A missing plugin fails the configurations that name it, and nothing else.
find "$work/prefix" -name tutti-proto-ll.so -delete
if "$tutti" bench all_reduce --ranks 2 --min 8 --max 8 2>"$work/missing"; then
  echo "a missing plugin went unnoticed" && exit 1
fi
grep -q "TUTTI-P01.*'ll' not found" "$work/missing"
"$tutti" bench all_reduce --ranks 2 --min 8 --max 8 --set 'plugins.protocol=[simple]' | grep 'wrong 0'
echo "install test passed"
