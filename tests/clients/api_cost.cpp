// SPDX-License-Identifier: Apache-2.0
// The cost of a call through libnccl.so.2 minus its cost through Tutti's own interface: all_reduces of 8 bytes in a row
// on a stream, both in turn. Ranks are threads, one for each GPU. Ends with 1 beyond 0.5 µs a call.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"
#include "tutti/communicator.h"

namespace {

constexpr int kSkipped = 77;
constexpr int kCalls = 2000;
constexpr int kRounds = 21;
constexpr double kAllowedUs = 0.5;
constexpr unsigned kLimitSeconds = 120;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "api_cost: %s\n", what.c_str());
  _exit(1);
}
void check(cudaError_t error) {
  if (error != cudaSuccess) fail(cudaGetErrorString(error));
}
void check(ncclResult_t result) {
  if (result != ncclSuccess) fail(ncclGetLastError(nullptr));
}
void check(const tutti::Status& status) {
  if (!status.ok()) fail(status.to_string());
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// µs to enqueue a call, and until it is done, when many follow each other.
struct Cost {
  std::vector<double> enqueue;
  std::vector<double> whole;
};

template <class Call>
void measure(Cost& cost, cudaStream_t stream, Call&& call) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  const auto enqueued = Clock::now();
  check(cudaStreamSynchronize(stream));
  const auto us = [&](Clock::time_point time) {
    return std::chrono::duration<double, std::micro>(time - start).count() / kCalls;
  };
  cost.enqueue.push_back(us(enqueued));
  cost.whole.push_back(us(Clock::now()));
}

struct Costs {
  Cost own;
  Cost nccl;
};

void run_rank(int rank, int ranks, const tutti::UniqueId& id, const ncclUniqueId& nccl_id, std::barrier<>& barrier,
              Costs& costs) {
  check(cudaSetDevice(rank));
  const tutti::Options options{{}, {{"device", "cuda"}, {"plugins.path", "[" TUTTI_BINARY_DIR "/lib/tutti/plugins]"}}};
  auto own = tutti::Communicator::create(id, rank, ranks, options);
  check(own.status());
  ncclComm_t nccl = nullptr;
  check(ncclCommInitRank(&nccl, ranks, nccl_id, rank));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  float* data = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&data), 1024));
  check(cudaMemset(data, 0, 1024));
  check(cudaDeviceSynchronize());
  for (int round = -2; round < kRounds; ++round) {
    if (round == 0) costs = {};  // the earlier calls were the warm-up
    barrier.arrive_and_wait();
    measure(costs.own, stream, [&] {
      check(own->all_reduce(data, data + 128, 2, tutti::DataType::kFloat32, tutti::ReduceOp::kSum, stream));
    });
    barrier.arrive_and_wait();
    measure(costs.nccl, stream, [&] { check(ncclAllReduce(data, data + 128, 2, ncclFloat, ncclSum, nccl, stream)); });
  }
  barrier.arrive_and_wait();
  check(ncclCommDestroy(nccl));
}

}  // namespace

int main() {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return kSkipped;
  alarm(kLimitSeconds);
  const auto id = tutti::UniqueId::create();
  check(id.status());
  ncclUniqueId nccl_id;
  check(ncclGetUniqueId(&nccl_id));
  std::barrier barrier(gpus);
  std::vector<Costs> costs(static_cast<size_t>(gpus));
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < gpus; ++rank) {
    ranks.emplace_back([&, rank] { run_rank(rank, gpus, *id, nccl_id, barrier, costs[static_cast<size_t>(rank)]); });
  }
  for (std::thread& rank : ranks) rank.join();
  const Costs& first = costs.front();
  const double enqueue = median(first.nccl.enqueue) - median(first.own.enqueue);
  const double whole = median(first.nccl.whole) - median(first.own.whole);
  const bool well = enqueue <= kAllowedUs && whole <= kAllowedUs;
  std::printf("%s: %d GPUs, 8 bytes: to enqueue %.2f µs (own %.2f), whole %.2f µs (own %.2f): %+.2f and %+.2f\n",
              well ? "passed" : "WRONG", gpus, median(first.nccl.enqueue), median(first.own.enqueue),
              median(first.nccl.whole), median(first.own.whole), enqueue, whole);
  return well ? 0 : 1;
}
