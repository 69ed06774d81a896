// SPDX-License-Identifier: Apache-2.0
// Registered buffers on GPUs: direct stores, mistakes of ranks, and the effect of mistakes on calls. Ranks are threads,
// each with a GPU of its own.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "device/cuda/driver.h"
#include "device/cuda/runtime.h"
#include "tutti/communicator.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr int kRanks = 2;
constexpr size_t kCount = size_t{3} << 20;  // elements of a block
constexpr size_t kBytes = size_t{64} << 20;

/// One rank: a GPU, a stream and buffers.
class Rank {
 public:
  explicit Rank(Communicator& communicator) : comm(communicator) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_TRUE(cuda::use_once(stream).ok());
    EXPECT_EQ(cudaMalloc(&buffer, kBytes), cudaSuccess);
  }
  ~Rank() {
    cudaFree(buffer);
    cudaStreamDestroy(stream);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  Registration registered() {
    auto registration = comm.register_buffer(buffer, kBytes);
    EXPECT_TRUE(registration.ok()) << registration.status().to_string();
    return registration.ok() ? *std::move(registration) : Registration();
  }
  float* input() const { return static_cast<float*>(buffer); }
  float* output() const { return input() + kCount; }

  /// Gathers blocks of `rank + first`, and returns the first mistake; empty: none.
  std::string gather(float* to, float first, cudaStream_t on) {
    std::vector<float> host(kCount, first + static_cast<float>(comm.rank()));
    EXPECT_EQ(cudaMemcpy(input(), host.data(), kCount * sizeof(float), cudaMemcpyHostToDevice), cudaSuccess);
    if (const Status status = comm.all_gather(input(), to, kCount, DataType::kFloat32, on); !status.ok()) {
      return status.to_string();
    }
    EXPECT_EQ(cudaStreamSynchronize(on), cudaSuccess);
    if (const Status status = comm.async_error(); !status.ok()) return status.to_string();
    host.resize(kRanks * kCount);
    EXPECT_EQ(cudaMemcpy(host.data(), to, host.size() * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
    for (size_t i = 0; i < host.size(); ++i) {
      const size_t rank = i / kCount;
      if (host[i] != first + static_cast<float>(rank)) return "wrong at " + std::to_string(i);
    }
    return {};
  }

  Communicator& comm;
  cudaStream_t stream = nullptr;
  void* buffer = nullptr;
};

bool have_gpus() {
  int gpus = 0;
  int can = 0;
  return cudaGetDeviceCount(&gpus) == cudaSuccess && gpus >= kRanks &&
         cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess && can != 0;
}

void on_gpus(Settings settings, const std::function<void(Rank&)>& body) {
  if (!have_gpus()) GTEST_SKIP() << "needs two GPUs that reach each other";
  settings.emplace_back("plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins");
  settings.emplace_back("device", "cuda");
  auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  // Buffers stay until no rank stores to them any more; after a failure, no call reports this.
  std::barrier all_done(kRanks);
  std::vector<std::thread> threads;
  for (int number = 0; number < kRanks; ++number) {
    threads.emplace_back([&, number] {
      EXPECT_EQ(cudaSetDevice(number), cudaSuccess);
      auto comm = Communicator::create(*id, number, kRanks, {"", settings});
      EXPECT_TRUE(comm.ok()) << comm.status().to_string();
      std::optional<Rank> rank;
      if (comm.ok()) body(rank.emplace(*comm));
      EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      all_done.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

const Settings kCopy = {{"protocol", "copy"}};

TEST(Registered, TakesWhatCopyEnginesStore) {
  on_gpus(kCopy, [](Rank& rank) {
    const Registration registration = rank.registered();
    EXPECT_TRUE(registration.direct());
    EXPECT_EQ(rank.gather(rank.output(), 1, rank.stream), "");
    EXPECT_EQ(rank.gather(rank.output() + 4, 5, rank.stream), "");
    EXPECT_EQ(rank.gather(rank.output() + 1, 9, nullptr), "") << "on the default stream";
    EXPECT_EQ(rank.gather(rank.output(), 13, rank.stream), "");
    EXPECT_TRUE(rank.comm.exchange({}).ok());  // all ranks have ended their calls
  });
}

TEST(Registered, IsNotUsedBeforeAndAfter) {
  on_gpus({}, [](Rank& rank) {
    EXPECT_EQ(rank.gather(rank.output(), 1, rank.stream), "");
    {
      const Registration registration = rank.registered();
      EXPECT_EQ(rank.gather(rank.output(), 2, rank.stream), "");
      EXPECT_EQ(rank.comm.register_buffer(rank.buffer, kBytes).status().code(), Code::kFailedPrecondition);
      EXPECT_TRUE(rank.comm.exchange({}).ok());
    }
    EXPECT_EQ(rank.gather(rank.output(), 3, rank.stream), "");
    EXPECT_TRUE(rank.registered().direct()) << "again";
    EXPECT_TRUE(rank.comm.exchange({}).ok());
  });
}

TEST(Registered, MemoryOfTheHostMakesNoDifference) {
  on_gpus({}, [](Rank& rank) {
    void* memory = nullptr;
    ASSERT_EQ(cudaMallocHost(&memory, 4096), cudaSuccess);
    const auto registration = rank.comm.register_buffer(memory, 4096);
    EXPECT_TRUE(registration.ok());
    EXPECT_FALSE(registration.ok() && registration->direct());
    EXPECT_TRUE(rank.comm.exchange({}).ok());
    cudaFreeHost(memory);
  });
}

/// Memory of the current GPU in two pieces, as pools have it that grow.
class GrownMemory {
 public:
  GrownMemory() {
    EXPECT_EQ(reserve_(&begin_, kBytes, 0, 0, 0), CUDA_SUCCESS);
    map_half(0);
    map_half(kBytes / 2);
  }
  ~GrownMemory() {
    unmap_(begin_, kBytes);
    free_(begin_, kBytes);
  }
  GrownMemory(const GrownMemory&) = delete;
  GrownMemory& operator=(const GrownMemory&) = delete;
  void* data() const { return reinterpret_cast<void*>(static_cast<uintptr_t>(begin_)); }

  /// Other memory at the same addresses.
  void renew_second_half() {
    EXPECT_EQ(unmap_(begin_ + kBytes / 2, kBytes / 2), CUDA_SUCCESS);
    map_half(kBytes / 2);
  }

 private:
  template <class Function>
  static Function of(const char* name) {
    return cuda::driver_function<Function>(name);
  }
  decltype(&cuMemAddressReserve) reserve_ = of<decltype(reserve_)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free_ = of<decltype(free_)>("cuMemAddressFree");
  decltype(&cuMemCreate) create_ = of<decltype(create_)>("cuMemCreate");
  decltype(&cuMemRelease) release_ = of<decltype(release_)>("cuMemRelease");
  decltype(&cuMemMap) map_ = of<decltype(map_)>("cuMemMap");
  decltype(&cuMemUnmap) unmap_ = of<decltype(unmap_)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access_ = of<decltype(set_access_)>("cuMemSetAccess");
  void map_half(size_t at) {
    int device = 0;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle piece = 0;
    EXPECT_EQ(create_(&piece, kBytes / 2, &properties, 0), CUDA_SUCCESS);
    EXPECT_EQ(map_(begin_ + at, kBytes / 2, 0, piece, 0), CUDA_SUCCESS);
    EXPECT_EQ(release_(piece), CUDA_SUCCESS);
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    EXPECT_EQ(set_access_(begin_ + at, kBytes / 2, &access, 1), CUDA_SUCCESS);
  }

  CUdeviceptr begin_ = 0;
};

TEST(Registered, MemoryThatGrewIsSharedByFiles) {
  on_gpus(kCopy, [](Rank& rank) {
    GrownMemory memory;
    void* const allocated = std::exchange(rank.buffer, memory.data());
    {
      const Registration registration = rank.registered();
      EXPECT_TRUE(registration.direct());
      EXPECT_EQ(rank.gather(rank.output(), 1, rank.stream), "");
      // An output in both pieces.
      EXPECT_EQ(rank.gather(rank.input() + kBytes / 2 / sizeof(float) - kCount, 5, rank.stream), "");
      EXPECT_TRUE(rank.comm.exchange({}).ok());  // all ranks have ended their calls
    }
    rank.buffer = allocated;
    EXPECT_TRUE(rank.comm.exchange({}).ok());  // no rank maps it any more
  });
}

TEST(Registered, WhatWasMappedAnewIsNotUsed) {
  on_gpus({}, [](Rank& rank) {
    GrownMemory memory;
    void* const allocated = std::exchange(rank.buffer, memory.data());
    float* const output = rank.input() + kBytes / 2 / sizeof(float) - kCount;  // in both pieces
    {
      const Registration registration = rank.registered();
      EXPECT_EQ(rank.gather(output, 1, rank.stream), "");
      EXPECT_TRUE(rank.comm.exchange({}).ok());  // all ranks have ended their calls
      memory.renew_second_half();
      EXPECT_TRUE(rank.comm.exchange({}).ok());
      EXPECT_EQ(rank.gather(output, 5, rank.stream), "");
      EXPECT_TRUE(rank.comm.exchange({}).ok());
    }
    rank.buffer = allocated;
    EXPECT_TRUE(rank.comm.exchange({}).ok());
  });
}

TEST(Registered, WhatWasFreedIsNotUsed) {
  on_gpus({}, [](Rank& rank) {
    const Registration registration = rank.registered();
    EXPECT_EQ(rank.gather(rank.output(), 1, rank.stream), "");
    EXPECT_TRUE(rank.comm.exchange({}).ok());
    cudaFree(rank.buffer);
    EXPECT_EQ(cudaMalloc(&rank.buffer, kBytes), cudaSuccess);  // likely at the same address
    EXPECT_TRUE(rank.comm.exchange({}).ok());                  // freeing may wait for the other GPU
    EXPECT_EQ(rank.gather(rank.output(), 2, rank.stream), "");
    EXPECT_TRUE(rank.comm.exchange({}).ok());
  });
}

TEST(Registered, OtherOffsetsAreTold) {
  on_gpus(kCopy, [](Rank& rank) {
    const Registration registration = rank.registered();
    float* const output = rank.output() + (rank.comm.rank() == 0 ? 0 : 1024);
    EXPECT_THAT(rank.gather(output, 1, rank.stream), HasSubstr("lie at different places of registered buffers"));
    EXPECT_EQ(rank.comm.async_error().code(), Code::kMismatch);
  });
}

TEST(Registered, ARankThatDoesNotCallIsNamed) {
  Settings settings = kCopy;
  settings.emplace_back("timeouts.operation", "2s");
  on_gpus(settings, [](Rank& rank) {
    const Registration registration = rank.registered();
    if (rank.comm.rank() == 1) {
      while (rank.comm.async_error().ok()) std::this_thread::yield();
      return;
    }
    EXPECT_THAT(rank.gather(rank.output(), 1, rank.stream), HasSubstr("rank 0 waits for rank 1"));
  });
}

TEST(Registered, AnAbortEndsACall) {
  on_gpus(kCopy, [](Rank& rank) {
    const Registration registration = rank.registered();
    if (rank.comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // not a synchronisation: the call waits by then
      rank.comm.abort("enough");
      return;
    }
    EXPECT_THAT(rank.gather(rank.output(), 1, rank.stream), HasSubstr("enough"));
  });
}

}  // namespace
}  // namespace tutti
