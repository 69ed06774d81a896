#!/usr/bin/env bash
# Packs a build so that it runs on a different machine with glibc, libgcc and a driver of CUDA:
# scripts/pack_build.sh BUILD_FOLDER OUT.tgz [TEST...]
#
# Holds programs, libraries, plugins, configurations, the named tests (default: those for GPUs), scripts, and the shared
# libraries that they need and that a distribution may have in a different version. To use it: tar xzf OUT.tgz; . env.sh
set -euo pipefail
build=$(realpath "${1:?usage: scripts/pack_build.sh BUILD_FOLDER OUT.tgz [TEST...]}")
out=$(realpath -m "${2:?usage: scripts/pack_build.sh BUILD_FOLDER OUT.tgz [TEST...]}")
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests=("$@")
((${#tests[@]})) || tests=(gpu_stress_test matrix_test random_calls_test fault_registered_test fault_leave_gpu_test
  thread_stream_test nccl_arguments nccl_codes nccl_family nccl_like nccl_api_cost)
pack=$(mktemp -d)
trap 'rm -rf "$pack"' EXIT

mkdir -p "$pack/build/bin" "$pack/build/lib/nccl" "$pack/build/lib/tutti/plugins" "$pack/build/tests" "$pack/libs"
for program in tutti gpu_limits; do
  [[ ! -e $build/bin/$program ]] || cp "$build/bin/$program" "$pack/build/bin/"
done
for test in "${tests[@]}"; do
  [[ ! -e $build/tests/$test ]] || cp "$build/tests/$test" "$pack/build/tests/"
done
find "$build/lib" -maxdepth 1 -name '*.so*' -exec cp -P {} "$pack/build/lib/" \;
[[ ! -e $build/lib/nccl/libnccl.so.2 ]] || cp -P "$build"/lib/nccl/* "$pack/build/lib/nccl/"
cp "$build"/lib/tutti/plugins/*.so "$pack/build/lib/tutti/plugins/"
[[ ! -d $build/tests/networks ]] || cp "$build"/tests/networks/*.so "$pack/build/lib/tutti/plugins/"
cp -r configs bench scripts tests/fault tests/clients "$pack/"
mkdir -p "$pack/tests/integration" "$pack/compat/nccl" && mv "$pack/fault" "$pack/clients" "$pack/tests/"
cp tests/integration/*.py "$pack/tests/integration/"
cp compat/nccl/symbols.txt "$pack/compat/nccl/"

# The libraries that the loader finds, without the libraries of the system: the loader itself, glibc, the compiler's and
# the driver's.
elves=$(find "$pack/build" -type f \( -perm -u+x -o -name '*.so*' \))
systems='ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libmvec|libutil|libanl|libnsl|libgcc_s|libcuda|libnvidia'
for elf in $elves; do ldd "$elf" 2>/dev/null || true; done |
  awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
  { grep -vE "^$build/|/($systems)[.-]" || true; } |
  while read -r library; do cp -L "$library" "$pack/libs/"; done
for elf in $elves; do strip --strip-unneeded "$elf" 2>/dev/null || true; done

cat >"$pack/env.sh" <<'END'
# Source it: programs of the pack find their libraries and plugins. Programs for NCCL take Tutti's libnccl.so.2 if
# build/lib/nccl is put before these.
pack=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export LD_LIBRARY_PATH=$pack/build/lib:$pack/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TUTTI_PLUGINS_PATH=$pack/build/lib/tutti/plugins PATH=$pack/build/bin:$PATH
END
tar -C "$pack" -czf "$out" .
echo "$out: $(du -h "$out" | cut -f 1), to be unpacked anywhere; then: . env.sh"
