// SPDX-License-Identifier: Apache-2.0
// The highest bandwidth between two GPUs, by thread blocks: the limit for the bandwidth of collectives. Each block
// copies its own part, with bulk copies as in the Simple protocol's pipeline, or with loads and stores of its threads.
//
//   one way    GPU 0 stores to GPU 1
//   both ways  each GPU stores to the other GPU
//   and local  both ways, and a copy of all stored data to the own GPU: all stores of an SM share one limit
//
// Without two GPUs that reach each other, the program says so and exits with 77.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "tutti/device/cuda/mbarrier.h"

namespace {

using namespace tutti::device;

constexpr size_t kBytes = size_t{512} << 20;
constexpr uint32_t kTile = 16 << 10;
constexpr uint32_t kTiles = 8;  // on their way
constexpr uint32_t kThreads = 512;
constexpr int kRepeats = 4;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECK(call) check(call, #call)

/// One thread per block. `second` may be null.
__global__ void copy_bulk(const uint8_t* from, uint8_t* to, uint8_t* second, size_t bytes) {
  extern __shared__ __align__(128) uint8_t tiles[];
  __shared__ Mbarrier loaded[kTiles];
  for (Mbarrier& mbarrier : loaded) mbarrier.init(1);
  fence_bulk_shared();
  const size_t begin = blockIdx.x * bytes;
  const auto count = static_cast<uint32_t>(bytes / kTile);
  const auto load = [&](uint32_t tile) {
    loaded[tile % kTiles].arrive_expecting(kTile);
    loaded[tile % kTiles].load(tiles + tile % kTiles * kTile, from + begin + size_t{tile} * kTile, kTile);
  };
  for (uint32_t tile = 0; tile + 1 < kTiles && tile < count; ++tile) load(tile);
  for (uint32_t tile = 0; tile < count; ++tile) {
    loaded[tile % kTiles].wait(tile / kTiles);
    const size_t at = begin + size_t{tile} * kTile;
    store_bulk(to + at, tiles + tile % kTiles * kTile, kTile);
    if (second != nullptr) store_bulk(second + at, tiles + tile % kTiles * kTile, kTile);
    end_store_group();
    if (tile + kTiles - 1 >= count) continue;
    wait_stores_read<1>();
    load(tile + kTiles - 1);
  }
  wait_stores();
}

__global__ void __launch_bounds__(kThreads) copy_threads(const uint4* from, uint4* to, size_t packs) {
  constexpr uint32_t kUnroll = 8;
  from += blockIdx.x * packs;
  to += blockIdx.x * packs;
  for (size_t i = threadIdx.x; i + (kUnroll - 1) * kThreads < packs; i += kUnroll * kThreads) {
    uint4 values[kUnroll];
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) values[u] = __ldcs(from + i + u * kThreads);
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) to[i + u * kThreads] = values[u];
  }
}

struct Gpu {
  uint8_t* input = nullptr;
  uint8_t* received = nullptr;
  uint8_t* copy = nullptr;
  cudaStream_t stream = nullptr;
};

/// GB/s per direction if `start(gpu)` moves `bytes` bytes on the first `count` GPUs at the same time.
double measure(Gpu (&gpus)[2], int count, size_t bytes, const std::function<void(int)>& start) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  CHECK(cudaSetDevice(0));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  for (int repeat = -1; repeat < kRepeats; ++repeat) {
    if (repeat == 0) CHECK(cudaEventRecord(begin, gpus[0].stream));
    for (int g = count - 1; g >= 0; --g) {
      CHECK(cudaSetDevice(g));
      start(g);
      CHECK(cudaGetLastError());
    }
  }
  CHECK(cudaEventRecord(end, gpus[0].stream));
  for (int g = 0; g < 2; ++g) CHECK(cudaStreamSynchronize(gpus[g].stream));
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  return static_cast<double>(bytes) * kRepeats / ms / 1e6;
}

}  // namespace

int main() {
  int count = 0;
  int reaches = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2 ||
      cudaDeviceCanAccessPeer(&reaches, 0, 1) != cudaSuccess || reaches == 0) {
    std::puts("skipped: there are no two GPUs that reach each other");
    return 77;
  }
  Gpu gpus[2];
  for (int g = 0; g < 2; ++g) {
    CHECK(cudaSetDevice(g));
    CHECK(cudaDeviceEnablePeerAccess(1 - g, 0));
    for (uint8_t** memory : {&gpus[g].input, &gpus[g].received, &gpus[g].copy}) {
      CHECK(cudaMalloc(reinterpret_cast<void**>(memory), kBytes));
      CHECK(cudaMemset(*memory, g, kBytes));
    }
    CHECK(cudaStreamCreateWithFlags(&gpus[g].stream, cudaStreamNonBlocking));
    CHECK(cudaFuncSetAttribute(copy_bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, kTiles * kTile));
    CHECK(cudaDeviceSynchronize());
  }
  std::puts("GB/s per direction | one way: bulk | threads | both ways: bulk | threads | and local: bulk");
  for (const int blocks : {1, 2, 4, 8, 16, 32, 64, 128}) {
    const size_t share = blocks < 8 ? 16 : 1;  // part of the memory: a single block would take long for all of it
    const size_t part = kBytes / static_cast<size_t>(blocks) / share;
    const auto bulk = [&](int g, bool local) {
      copy_bulk<<<blocks, 1, kTiles * kTile, gpus[g].stream>>>(gpus[g].input, gpus[1 - g].received,
                                                               local ? gpus[g].copy : nullptr, part);
    };
    const auto threads = [&](int g) {
      copy_threads<<<blocks, kThreads, 0, gpus[g].stream>>>(reinterpret_cast<const uint4*>(gpus[g].input),
                                                            reinterpret_cast<uint4*>(gpus[1 - g].received), part / 16);
    };
    const size_t bytes = part * static_cast<size_t>(blocks);
    std::printf("%3d blocks | %.1f | %.1f | %.1f | %.1f | %.1f\n", blocks,
                measure(gpus, 1, bytes, [&](int g) { bulk(g, false); }), measure(gpus, 1, bytes, threads),
                measure(gpus, 2, bytes, [&](int g) { bulk(g, false); }), measure(gpus, 2, bytes, threads),
                measure(gpus, 2, bytes, [&](int g) { bulk(g, true); }));
  }
  const auto engine = [&](int g) {
    CHECK(cudaMemcpyAsync(gpus[1 - g].received, gpus[g].input, kBytes, cudaMemcpyDeviceToDevice, gpus[g].stream));
  };
  std::printf("copy engine | %.1f | | %.1f | |\n", measure(gpus, 1, kBytes, engine), measure(gpus, 2, kBytes, engine));
  return 0;
}
