// SPDX-License-Identifier: Apache-2.0
// Calls on cudaStreamPerThread, which means a different stream in each thread. The ranks share a GPU if there is only
// one GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/communicator.h"
#include "unit/gpu_ranks.h"

namespace tutti {
namespace {

constexpr int kRanks = 2;
constexpr size_t kCount = 4096;
constexpr size_t kBytes = kCount * sizeof(int32_t);

constexpr size_t kThreads = 2;

/// A rank with its GPU, and buffers for each thread. A call goes to the stream of the calling thread.
class Rank {
 public:
  Rank(Communicator communicator, int gpu) : gpu_(gpu), comm_(std::move(communicator)) {
    select();
    for (void*& buffer : buffers_) EXPECT_EQ(cudaMalloc(&buffer, kBytes), cudaSuccess);
  }
  ~Rank() {
    select();
    comm_.reset();
    for (void* const buffer : buffers_) cudaFree(buffer);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void select() const { EXPECT_EQ(cudaSetDevice(gpu_), cudaSuccess); }
  /// Enqueues work that gives the input its value late.
  void fill(size_t thread, uint8_t byte) const {
    const auto pause = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
    EXPECT_EQ(cudaMemsetAsync(input(thread), 0, kBytes, cudaStreamPerThread), cudaSuccess);
    EXPECT_EQ(cudaLaunchHostFunc(cudaStreamPerThread, pause, nullptr), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(input(thread), byte, kBytes, cudaStreamPerThread), cudaSuccess);
  }
  Status call(size_t thread) {
    return comm_->all_reduce(input(thread), output(thread), kCount, DataType::kInt32, ReduceOp::kSum,
                             cudaStreamPerThread);
  }
  /// Waits for the stream of the calling thread.
  void expect(size_t thread, int32_t value) const {
    std::vector<int32_t> result(kCount);
    EXPECT_EQ(cudaMemcpyAsync(result.data(), output(thread), kBytes, cudaMemcpyDeviceToHost, cudaStreamPerThread),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
    EXPECT_EQ(result, std::vector<int32_t>(kCount, value));
    EXPECT_TRUE(comm_->async_error().ok()) << comm_->async_error().to_string();
  }

 private:
  void* input(size_t thread) const { return buffers_[2 * thread]; }
  void* output(size_t thread) const { return buffers_[2 * thread + 1]; }

  int gpu_;
  std::optional<Communicator> comm_;
  std::array<void*, 2 * kThreads> buffers_{};
};

using Ranks = std::array<std::unique_ptr<Rank>, kRanks>;

void make(Ranks& ranks) {
  // Ranks that share a GPU must not wait for each other's kernels to be loaded, nor share hardware queues.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (test::gpu_count() == 0) GTEST_SKIP() << "needs a GPU";
  test::in_gpu_ranks(kRanks, {{"timeouts.operation", "20s"}}, [&](Communicator communicator, int gpu) {
    const auto number = static_cast<size_t>(communicator.rank());
    ranks[number] = std::make_unique<Rank>(std::move(communicator), gpu);
  });
}

/// The value of an element whose bytes are all `byte`, of both ranks.
int32_t sum(int32_t byte) {
  return 2 * 0x01010101 * byte;
}

/// The ranks end at the same time: each waits for the other.
void end(Ranks& ranks) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&rank] { rank.reset(); });
  for (std::thread& thread : threads) thread.join();
}

TEST(ThreadStream, AGroupOfTwoRanksIsInOrderWithTheThreadsWork) {
  Ranks ranks;
  make(ranks);
  if (IsSkipped() || HasFailure()) return;
  for (int32_t round = 1; round <= 20; ++round) {
    for (const auto& rank : ranks) {
      rank->select();
      rank->fill(0, static_cast<uint8_t>(round));
    }
    ASSERT_TRUE(group_start().ok());
    for (const auto& rank : ranks) EXPECT_TRUE(rank->call(0).ok());
    const Status done = group_end();
    ASSERT_TRUE(done.ok()) << done.to_string();
    for (const auto& rank : ranks) {
      rank->select();
      rank->expect(0, sum(round));
    }
  }
  end(ranks);
}

/// The call of a group stays on the stream of the thread, and so in its capture.
TEST(ThreadStream, AGroupMayBeCaptured) {
  if (test::gpu_count() == 0) GTEST_SKIP() << "needs a GPU";
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  auto comm = Communicator::create(*id, 0, 1,
                                   {"", {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}, {"device", "cuda"}}});
  ASSERT_TRUE(comm.ok()) << comm.status().to_string();
  Rank rank(*std::move(comm), 0);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  rank.fill(0, 7);
  ASSERT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(cudaStreamPerThread, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_TRUE(group_start().ok());
  EXPECT_TRUE(rank.call(0).ok());
  const Status done = group_end();
  EXPECT_TRUE(done.ok()) << done.to_string();
  ASSERT_EQ(cudaStreamEndCapture(cudaStreamPerThread, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, cudaStreamPerThread), cudaSuccess);
  rank.expect(0, sum(7) / 2);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST(ThreadStream, CallsOfTwoThreadsRunOneAfterAnother) {
  Ranks ranks;
  make(ranks);
  if (IsSkipped() || HasFailure()) return;
  std::barrier turn(kRanks * kThreads);
  // The second thread calls while the first thread's call waits for its input.
  const auto work = [&](Rank& rank, size_t thread) {
    rank.select();
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
    rank.fill(thread, 0);  // CUDA gives a stream its hardware queue at its first use
    EXPECT_EQ(cudaStreamSynchronize(cudaStreamPerThread), cudaSuccess);
    turn.arrive_and_wait();
    for (int32_t round = 1; round <= 20; ++round) {
      for (size_t next = 0; next < kThreads; ++next) {
        if (next == thread) {
          rank.fill(thread, static_cast<uint8_t>(round + static_cast<int32_t>(thread)));
          EXPECT_TRUE(rank.call(thread).ok());
        }
        turn.arrive_and_wait();
      }
      rank.expect(thread, sum(round + static_cast<int32_t>(thread)));
      turn.arrive_and_wait();
    }
  };
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    for (size_t thread = 0; thread < kThreads; ++thread) threads.emplace_back([&, thread] { work(*rank, thread); });
  }
  for (std::thread& thread : threads) thread.join();
  end(ranks);
}

}  // namespace
}  // namespace tutti
