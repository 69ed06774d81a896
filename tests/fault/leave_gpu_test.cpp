// SPDX-License-Identifier: Apache-2.0
// A rank that leaves while its peer still calls, on GPUs: the kernel that waits for it ends, and the text names the
// rank. Ranks are threads; they share a GPU if there is only one GPU.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "device/cuda/runtime.h"
#include "tutti/communicator.h"
#include "unit/gpu_ranks.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 2;
constexpr size_t kCount = 1024;
constexpr std::chrono::seconds kPrompt{10};

/// The stream of a rank, made once. Ranks that share a GPU share its hardware queues. CUDA gives the queues to new
/// streams in turn, so streams of two ranks may get the same queue if each test makes new streams. The kernel of one
/// rank would then wait behind the kernel that waits for it.
cudaStream_t stream_of(int rank) {
  static const std::array<cudaStream_t, kRanks> streams = [] {
    std::array<cudaStream_t, kRanks> made{};
    int gpus = 0;
    EXPECT_EQ(cudaGetDeviceCount(&gpus), cudaSuccess);
    for (int number = 0; number < kRanks; ++number) {
      EXPECT_EQ(cudaSetDevice(number % gpus), cudaSuccess);
      EXPECT_EQ(cudaStreamCreateWithFlags(&made[static_cast<size_t>(number)], cudaStreamNonBlocking), cudaSuccess);
      EXPECT_TRUE(cuda::use_once(made[static_cast<size_t>(number)]).ok());
    }
    return made;
  }();
  return streams[static_cast<size_t>(rank)];
}

/// One rank: a stream and buffers.
class Rank {
 public:
  explicit Rank(Communicator communicator) : comm(std::move(communicator)), stream_(stream_of(comm->rank())) {
    EXPECT_EQ(cudaMalloc(&buffer_, kCount * sizeof(float)), cudaSuccess);
  }
  ~Rank() { cudaFree(buffer_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Status enqueue() { return comm->all_reduce(buffer_, buffer_, kCount, DataType::kFloat32, ReduceOp::kSum, stream_); }
  /// Returns when the call has completed, or was ended.
  Status finish() {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return comm->async_error();
  }

  std::optional<Communicator> comm;

 private:
  cudaStream_t stream_;
  void* buffer_ = nullptr;
};

void on_gpus(const std::function<void(Rank&)>& body) {
  if (test::gpu_count() == 0) GTEST_SKIP() << "needs a GPU";
  stream_of(0);  // before the ranks' threads choose their GPUs
  test::in_gpu_ranks(kRanks, {{"protocol", "ll"}, {"timeouts.operation", "120s"}}, [&](Communicator communicator, int) {
    Rank rank(std::move(communicator));
    for (int call = 0; call < 3; ++call) EXPECT_TRUE(rank.enqueue().ok());
    const Status good = rank.finish();
    EXPECT_TRUE(good.ok()) << good.to_string();
    body(rank);
  });
}

void expect_told(const Status& status, Clock::time_point since) {
  EXPECT_LT(Clock::now() - since, kPrompt);
  EXPECT_EQ(status.code(), Code::kRemote) << status.to_string();
  EXPECT_THAT(std::string(status.text()),
              AllOf(HasSubstr("rank 1 left before call 4"), HasSubstr("rank 1 has enqueued call 3, all_reduce")));
}

TEST(LeaveGpu, WhileAKernelWaits) {
  std::atomic<bool> enqueued{false};
  on_gpus([&](Rank& rank) {
    if (rank.comm->rank() == 1) {
      while (!enqueued) std::this_thread::yield();
      rank.comm.reset();
      return;
    }
    EXPECT_TRUE(rank.enqueue().ok());
    enqueued = true;
    const auto start = Clock::now();
    expect_told(rank.finish(), start);
    expect_told(rank.enqueue(), start);
  });
}

TEST(LeaveGpu, BeforeACall) {
  on_gpus([](Rank& rank) {
    if (rank.comm->rank() == 1) {
      rank.comm.reset();
      return;
    }
    const auto start = Clock::now();
    const Status enqueued = rank.enqueue();  // before or after the departure is told
    expect_told(enqueued.ok() ? rank.finish() : enqueued, start);
  });
}

TEST(LeaveGpu, AGoodEndIsNoFailure) {
  for (int repetition = 0; repetition < 5; ++repetition) {
    on_gpus([&](Rank& rank) {
      for (int call = 0; call < 20; ++call) EXPECT_TRUE(rank.enqueue().ok());
      if (rank.comm->rank() == repetition % 2) {
        rank.comm.reset();  // with calls that still run
        return;
      }
      const Status good = rank.finish();
      EXPECT_TRUE(good.ok()) << good.to_string();
    });
  }
}

}  // namespace
}  // namespace tutti
