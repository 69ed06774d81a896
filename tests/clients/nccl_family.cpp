// SPDX-License-Identifier: Apache-2.0
// Communicators made from other communicators, also from broken communicators, and ends from any state. Four ranks are
// threads of this process, on all GPUs of the machine. Ranks share GPUs if there are fewer than four; Tutti permits
// this on request.
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "nccl.h"

namespace {

constexpr int kSkipped = 77;
constexpr int kRanks = 4;
constexpr size_t kCount = 5003;
constexpr unsigned kLimitSeconds = 150;

#define REQUIRE(condition)                                                                       \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      std::printf("WRONG: line %d: %s (%s)\n", __LINE__, #condition, ncclGetLastError(nullptr)); \
      _exit(1);                                                                                  \
    }                                                                                            \
  } while (false)
#define OK(call) REQUIRE((call) == ncclSuccess)
#define CUDA(call) REQUIRE((call) == cudaSuccess)

/// The resources of one rank: a GPU, streams, a buffer on the GPU and a pinned buffer of the host. A copy from memory
/// that is not pinned may wait in the driver for work of a different rank on the same GPU, which waits for this rank.
struct Rank {
  int rank = 0;
  cudaStream_t stream = nullptr;
  cudaStream_t other = nullptr;
  float* data = nullptr;
  float* host = nullptr;

  void set(float value) const {
    std::fill_n(host, kCount, value);
    CUDA(cudaMemcpyAsync(data, host, kCount * sizeof(float), cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
  }
  bool all_are(float value) const {
    CUDA(cudaMemcpyAsync(host, data, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    return std::count(host, host + kCount, value) == kCount;
  }
};

std::barrier together(kRanks);
ncclUniqueId the_id;

/// A new communicator of all four.
ncclComm_t all_four(const Rank& own, ncclConfig_t* config = nullptr) {
  if (own.rank == 0) OK(ncclGetUniqueId(&the_id));
  together.arrive_and_wait();
  ncclComm_t comm = nullptr;
  OK(ncclCommInitRankConfig(&comm, kRanks, the_id, own.rank, config));
  return comm;
}

void wait_until_made(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) OK(ncclCommGetAsyncError(comm, &state));
  OK(state);
}

/// The sum over `members` of their numbers, from 1.
void expect_sum(const Rank& own, ncclComm_t comm, const std::vector<int>& members, int place) {
  int size = 0;
  int rank = -1;
  OK(ncclCommCount(comm, &size));
  OK(ncclCommUserRank(comm, &rank));
  REQUIRE(size == static_cast<int>(members.size()) && rank == place);
  own.set(static_cast<float>(own.rank + 1));
  OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, ncclSum, comm, own.stream));
  REQUIRE(own.all_are(static_cast<float>(std::accumulate(members.begin(), members.end(), 0)) +
                      static_cast<float>(members.size())));
}

void split(const Rank& own) {
  ncclComm_t comm = all_four(own);
  ncclComm_t half = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = 2;
  OK(ncclCommSplit(comm, own.rank % 2, -own.rank, &half, &config));
  expect_sum(own, half, own.rank % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3}, own.rank < 2 ? 1 : 0);
  ncclComm_t three = nullptr;
  OK(ncclCommSplit(comm, own.rank == 1 ? NCCL_SPLIT_NOCOLOR : 7, own.rank, &three, nullptr));
  REQUIRE((three == nullptr) == (own.rank == 1));
  if (three != nullptr) expect_sum(own, three, {0, 2, 3}, own.rank == 0 ? 0 : own.rank - 1);
  OK(ncclCommDestroy(comm));
  expect_sum(own, half, own.rank % 2 == 0 ? std::vector{0, 2} : std::vector{1, 3}, own.rank < 2 ? 1 : 0);
  OK(ncclCommDestroy(half));
  if (three != nullptr) OK(ncclCommDestroy(three));
}

/// First rank 0, which made the id, is left out; then one more.
void shrink(const Rank& own) {
  ncclComm_t comm = all_four(own);
  int left_out[2] = {0, 2};
  if (own.rank != 0) {
    ncclComm_t less = nullptr;
    OK(ncclCommShrink(comm, left_out, 1, &less, nullptr, NCCL_SHRINK_DEFAULT));
    expect_sum(own, less, {1, 2, 3}, own.rank - 1);
    OK(ncclCommDestroy(less));
    if (own.rank != 2) {
      OK(ncclCommShrink(comm, left_out, 2, &less, nullptr, NCCL_SHRINK_DEFAULT));
      expect_sum(own, less, {1, 3}, own.rank / 2);
      OK(ncclCommDestroy(less));
    }
  }
  together.arrive_and_wait();
  OK(ncclCommDestroy(comm));
}

/// Kernels of three wait for the fourth, which never comes: they go on without it.
void shrink_after_a_loss(const Rank& own) {
  ncclComm_t comm = all_four(own);
  expect_sum(own, comm, {0, 1, 2, 3}, own.rank);
  if (own.rank != 3) OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, ncclSum, comm, own.stream));
  together.arrive_and_wait();
  if (own.rank != 3) {
    int lost = 3;
    ncclComm_t less = nullptr;
    OK(ncclCommShrink(comm, &lost, 1, &less, nullptr, NCCL_SHRINK_ABORT));
    expect_sum(own, less, {0, 1, 2}, own.rank);
    OK(ncclCommDestroy(less));
  }
  together.arrive_and_wait();
  OK(ncclCommAbort(comm));
}

void revoke(const Rank& own) {
  ncclComm_t comm = all_four(own);
  together.arrive_and_wait();
  const ncclResult_t revoked = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
  REQUIRE(revoked == ncclSuccess);
  REQUIRE(ncclAllReduce(own.data, own.data, 1, ncclFloat, ncclSum, comm, own.stream) == ncclInvalidUsage);
  ncclComm_t again = nullptr;
  OK(ncclCommSplit(comm, 0, own.rank, &again, nullptr));
  expect_sum(own, again, {0, 1, 2, 3}, own.rank);
  OK(ncclCommDestroy(comm));
  OK(ncclCommDestroy(again));
}

/// Two communicators' kernels wait for a rank that never comes; a thread aborts first one communicator, then the
/// second.
void abort_what_waits(const Rank& own) {
  ncclComm_t first = all_four(own);
  ncclComm_t second = all_four(own);
  expect_sum(own, first, {0, 1, 2, 3}, own.rank);
  expect_sum(own, second, {0, 1, 2, 3}, own.rank);
  together.arrive_and_wait();
  if (own.rank != 3) {
    OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, ncclSum, first, own.stream));
    OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, ncclSum, second, own.other));
  }
  together.arrive_and_wait();
  std::thread([&] {
    OK(ncclCommAbort(first));
    OK(ncclCommAbort(second));
  }).join();
  CUDA(cudaStreamSynchronize(own.stream));
  CUDA(cudaStreamSynchronize(own.other));
  together.arrive_and_wait();
}

void not_blocking(const Rank& own) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (own.rank == 0) OK(ncclGetUniqueId(&the_id));
  together.arrive_and_wait();
  ncclComm_t comm = nullptr;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm, kRanks, the_id, own.rank, &config);
  REQUIRE(begun == ncclInProgress || begun == ncclSuccess);
  wait_until_made(comm);
  expect_sum(own, comm, {0, 1, 2, 3}, own.rank);
  ncclComm_t half = nullptr;
  const ncclResult_t parted = ncclCommSplit(comm, own.rank / 2, own.rank, &half, &config);
  REQUIRE(parted == ncclInProgress || parted == ncclSuccess);
  wait_until_made(half);
  expect_sum(own, half, own.rank < 2 ? std::vector{0, 1} : std::vector{2, 3}, own.rank % 2);
  OK(ncclCommFinalize(half));
  wait_until_made(half);
  OK(ncclCommDestroy(half));
  OK(ncclCommDestroy(comm));
  // Aborted while it is made: rank 3 does not come.
  if (own.rank == 0) OK(ncclGetUniqueId(&the_id));
  together.arrive_and_wait();
  if (own.rank != 3) {
    REQUIRE(ncclCommInitRankConfig(&comm, kRanks, the_id, own.rank, &config) == ncclInProgress);
    OK(ncclCommAbort(comm));
  }
  together.arrive_and_wait();
}

/// Calls on two streams in turn, and in one group: the communicator's kernels must run one after the other.
void streams(const Rank& own) {
  ncclComm_t comm = all_four(own);
  own.set(1);
  for (int i = 0; i < 8; ++i) {
    cudaStream_t stream = i % 2 == 0 ? own.stream : own.other;
    OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, i % 2 == 0 ? ncclSum : ncclAvg, comm, stream));
  }
  CUDA(cudaStreamSynchronize(own.other));
  REQUIRE(own.all_are(256));  // 4 to the fourth; averages of equals change nothing
  OK(ncclGroupStart());
  OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, ncclMax, comm, own.other));
  OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, ncclSum, comm, own.stream));
  OK(ncclGroupEnd());
  REQUIRE(own.all_are(1024));
  OK(ncclCommDestroy(comm));
}

/// Two communicators in one group, which ranks call in different orders, the first calls of either among them.
void orders(const Rank& own) {
  ncclComm_t comms[2] = {all_four(own), all_four(own)};
  constexpr size_t kHalf = kCount / 2;
  for (int round = 0; round < 4; ++round) {
    own.set(1);
    OK(ncclGroupStart());
    for (int i = 0; i < 2; ++i) {
      const int which = (i + own.rank + round) % 2;
      float* const half = own.data + static_cast<size_t>(which) * kHalf;
      OK(ncclAllReduce(half, half, kHalf + static_cast<size_t>(which), ncclFloat, ncclSum, comms[which], own.stream));
    }
    OK(ncclGroupEnd());
    REQUIRE(own.all_are(kRanks));
  }
  for (ncclComm_t comm : comms) OK(ncclCommDestroy(comm));
}

/// Rank 0 exchanges messages with all ranks in one group, more than all slots hold. The remaining ranks exchange only
/// with rank 0.
void one_with_all(const Rank& own) {
  constexpr size_t kMuch = (size_t{160} << 20) / sizeof(float);
  const size_t peers = own.rank == 0 ? kRanks - 1 : 1;
  float* buffers = nullptr;
  CUDA(cudaMalloc(reinterpret_cast<void**>(&buffers), 2 * peers * kMuch * sizeof(float)));
  float* const received = buffers + peers * kMuch;
  CUDA(cudaMemsetAsync(buffers, own.rank + 1, peers * kMuch * sizeof(float), own.stream));
  CUDA(cudaMemsetAsync(received, 0xee, peers * kMuch * sizeof(float), own.stream));
  ncclComm_t comm = all_four(own);
  OK(ncclGroupStart());
  for (size_t i = 0; i < peers; ++i) {
    const int peer = own.rank == 0 ? static_cast<int>(i) + 1 : 0;
    OK(ncclRecv(received + i * kMuch, kMuch, ncclFloat, peer, comm, own.stream));
    OK(ncclSend(buffers + i * kMuch, kMuch, ncclFloat, peer, comm, own.stream));
  }
  OK(ncclGroupEnd());
  for (size_t i = 0; i < peers; ++i) {
    const unsigned char byte = own.rank == 0 ? static_cast<unsigned char>(i + 2) : 1;
    for (const size_t at : {size_t{0}, kMuch / 2 + 1, kMuch - 1}) {
      CUDA(cudaMemcpyAsync(own.host, received + i * kMuch + at, sizeof(float), cudaMemcpyDeviceToHost, own.stream));
      CUDA(cudaStreamSynchronize(own.stream));
      const auto* const bytes = reinterpret_cast<const unsigned char*>(own.host);
      REQUIRE(std::count(bytes, bytes + sizeof(float), byte) == sizeof(float));
    }
  }
  together.arrive_and_wait();  // no kernel waits any more
  CUDA(cudaFree(buffers));
  OK(ncclCommDestroy(comm));
}

/// A factor in the GPU's memory, which the stream writes just before.
void factors(const Rank& own) {
  float* factor = nullptr;
  CUDA(cudaMalloc(reinterpret_cast<void**>(&factor), sizeof *factor));  // before any rank's kernel waits
  ncclComm_t comm = all_four(own);
  ncclRedOp_t op = ncclSum;
  OK(ncclRedOpCreatePreMulSum(&op, factor, ncclFloat, ncclScalarDevice, comm));
  own.set(3);
  own.host[0] = 0.5F;
  CUDA(cudaMemcpyAsync(factor, own.host, sizeof *factor, cudaMemcpyHostToDevice, own.stream));
  OK(ncclAllReduce(own.data, own.data, kCount, ncclFloat, op, comm, own.stream));
  OK(ncclRedOpDestroy(op, comm));
  REQUIRE(own.all_are(6));
  together.arrive_and_wait();  // no kernel waits any more
  CUDA(cudaFree(factor));
  OK(ncclCommDestroy(comm));
}

struct Scene {
  const char* name;
  void (*play)(const Rank&);
};
constexpr Scene kScenes[] = {
    {"split", split},     {"streams", streams},
    {"orders", orders},   {"one with all", one_with_all},
    {"factors", factors}, {"not blocking", not_blocking},
    {"shrink", shrink},   {"shrink after a loss", shrink_after_a_loss},
    {"revoke", revoke},   {"abort what waits", abort_what_waits},
};

void run_rank(int rank, int gpus) {
  Rank own;
  own.rank = rank;
  CUDA(cudaSetDevice(rank % gpus));
  CUDA(cudaStreamCreateWithFlags(&own.stream, cudaStreamNonBlocking));
  CUDA(cudaStreamCreateWithFlags(&own.other, cudaStreamNonBlocking));
  CUDA(cudaMalloc(reinterpret_cast<void**>(&own.data), kCount * sizeof(float)));
  CUDA(cudaMallocHost(reinterpret_cast<void**>(&own.host), kCount * sizeof(float)));
  // A stream waits at its first use for all kernels, which may wait for this rank.
  for (cudaStream_t stream : {own.stream, own.other}) {
    CUDA(cudaMemsetAsync(own.data, 0, sizeof(float), stream));
    CUDA(cudaStreamSynchronize(stream));
  }
  for (const Scene& scene : kScenes) {
    together.arrive_and_wait();
    if (rank == 0) std::printf("%s\n", scene.name);
    scene.play(own);
  }
  together.arrive_and_wait();
}

}  // namespace

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  // Before CUDA starts: ranks on one GPU must not wait for each other's kernels because they have to be loaded, or
  // share a queue of the hardware.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) return kSkipped;
  alarm(kLimitSeconds);  // ends the process if anything stands still
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(run_rank, rank, gpus);
  for (std::thread& rank : ranks) rank.join();
  std::printf("passed: %zu scenes, %d ranks on %d GPUs\n", std::size(kScenes), kRanks, gpus);
  return 0;
}
