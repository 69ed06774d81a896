// SPDX-License-Identifier: Apache-2.0
// Whether a new stream waits for running kernels: gpu_first_use [THREADS]
//
//   nvcc -O2 -std=c++17 -arch=sm_90 -o gpu_first_use bench/gpu_first_use.cu
//
// Each thread (default 4) makes a stream and launches a kernel that waits for the kernels of all threads, at most for
// 0.3 s. The threads share a GPU. Each row is one kind of use of the streams before the launches, in 4 runs. Its
// figures are the kernels of each run that gave up: 0 if all kernels ran at the same time. CUDA_DEVICE_MAX_CONNECTIONS
// must be at least THREADS.
#include <cuda_runtime.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#define CHECK(call)                                                                       \
  do {                                                                                    \
    const cudaError_t error_ = (call);                                                    \
    if (error_ != cudaSuccess) {                                                          \
      std::fprintf(stderr, "gpu_first_use: %s: %s\n", #call, cudaGetErrorString(error_)); \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (0)

constexpr int kRuns = 4;
constexpr long long kLimitCycles = 600'000'000;

enum class Use { kNone, kWait, kEvent, kFill, kKernel };

/// The words of one run, in memory of the GPU.
struct Words {
  int arrived;
  int gave_up;
  int filled;
};

__global__ void meet(Words* words, int kernels) {
  atomicAdd_system(&words->arrived, 1);
  const long long start = clock64();
  while (atomicAdd_system(&words->arrived, 0) < kernels) {
    if (clock64() - start < kLimitCycles) continue;
    atomicAdd_system(&words->gave_up, 1);
    return;
  }
}

__global__ void nothing() {}

void use_before(Use use, cudaStream_t stream, cudaEvent_t event, Words* words) {
  if (use == Use::kNone) return;
  if (use == Use::kEvent) CHECK(cudaEventRecord(event, stream));
  if (use == Use::kFill) CHECK(cudaMemsetAsync(&words->filled, 0, sizeof(int), stream));
  if (use == Use::kKernel) nothing<<<1, 1, 0, stream>>>();
  CHECK(cudaStreamSynchronize(stream));
}

/// Returns the number of kernels that gave up.
int run(int count, Use use) {
  Words* words = nullptr;
  CHECK(cudaMalloc(reinterpret_cast<void**>(&words), sizeof(Words)));
  CHECK(cudaMemset(words, 0, sizeof(Words)));
  CHECK(cudaDeviceSynchronize());
  std::atomic<int> ready = 0;
  std::atomic<int> ended = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      cudaStream_t stream = nullptr;
      cudaEvent_t event = nullptr;
      CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
      use_before(use, stream, event, words);
      for (++ready; ready < count;) std::this_thread::yield();
      meet<<<1, 1, 0, stream>>>(words, count);
      CHECK(cudaGetLastError());
      CHECK(cudaStreamSynchronize(stream));
      for (++ended; ended < count;) std::this_thread::yield();
      CHECK(cudaEventDestroy(event));
      CHECK(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  Words seen{};
  CHECK(cudaMemcpy(&seen, words, sizeof seen, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(words));
  return seen.gave_up;
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 4;
  if (count < 1) {
    std::fprintf(stderr, "usage: gpu_first_use [THREADS]\n");
    return 2;
  }
  // Loads the kernels, so that no launch waits for their code.
  cudaFuncAttributes attributes{};
  CHECK(cudaFuncGetAttributes(&attributes, meet));
  CHECK(cudaFuncGetAttributes(&attributes, nothing));
  const struct {
    Use use;
    const char* name;
  } rows[] = {{Use::kNone, "none"},
              {Use::kWait, "a wait"},
              {Use::kEvent, "an event"},
              {Use::kFill, "a fill"},
              {Use::kKernel, "a kernel"}};
  std::printf("kernels that gave up, of %d:\n", count);
  for (const auto& row : rows) {
    std::printf("use before: %-8s ", row.name);
    for (int i = 0; i < kRuns; ++i) std::printf(" %d", run(count, row.use));
    std::printf("\n");
  }
}
