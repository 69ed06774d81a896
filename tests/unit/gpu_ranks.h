// SPDX-License-Identifier: Apache-2.0
// The ranks of a communicator on GPUs, each in a thread of its own.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::test {

/// The GPUs that this process sees; 0: none.
inline int gpu_count() {
  int gpus = 0;
  return cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0;
}

/// Makes a communicator of `ranks` ranks, and gives each rank to `body`, in a thread whose GPU is current. Ranks share
/// GPUs if there are fewer GPUs than ranks. Returns when all threads have ended.
inline void in_gpu_ranks(int ranks, std::vector<std::pair<std::string, std::string>> settings,
                         const std::function<void(Communicator, int gpu)>& body) {
  settings.insert(settings.end(), {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}, {"device", "cuda"}});
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  const int gpus = gpu_count();
  std::vector<std::thread> threads;
  for (int number = 0; number < ranks; ++number) {
    threads.emplace_back([&, number] {
      EXPECT_EQ(cudaSetDevice(number % gpus), cudaSuccess);
      auto comm = Communicator::create(*id, number, ranks, {"", settings});
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      body(*std::move(comm), number % gpus);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tutti::test
