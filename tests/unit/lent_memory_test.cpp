// SPDX-License-Identifier: Apache-2.0
// Memory that a second GPU lends the first GPU. Needs two GPUs.
#include "device/cuda/lent_memory.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "device/cuda/dmabuf.h"
#include "device/cuda/driver.h"
#include "unit/required.h"

namespace tutti::cuda {
namespace {

using test::required;

constexpr int kUser = 0;
constexpr int kOwner = 1;
constexpr size_t kBytes = size_t{3} << 20;

/// Whether this process has a context on a GPU.
bool has_context(int device) {
  static const auto state = driver_function<decltype(&cuDevicePrimaryCtxGetState)>("cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int is_active = 0;
  EXPECT_EQ(state(device, &flags, &is_active), CUDA_SUCCESS);
  return is_active != 0;
}

class LentMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < 2) GTEST_SKIP() << "needs two GPUs";
    ASSERT_EQ(cudaSetDevice(kUser), cudaSuccess);
    ASSERT_EQ(cudaFree(nullptr), cudaSuccess);
    ASSERT_FALSE(has_context(kOwner));
    const std::string why_not = required(why_not_lent(required(pci_address(kOwner)), kUser, true));
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
  /// No call makes a context on the second GPU.
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_FALSE(has_context(kOwner));
  }
};

TEST_F(LentMemoryTest, IsZeroAndHoldsData) {
  const LentMemory memory = required(LentMemory::create(kOwner, kUser, kBytes));
  EXPECT_GE(memory.size(), kBytes);
  std::vector<uint8_t> found(kBytes, 1);
  ASSERT_EQ(cudaMemcpy(found.data(), memory.data(), kBytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_THAT(found, testing::Each(0));
  std::vector<uint8_t> data(kBytes);
  for (size_t i = 0; i < kBytes; ++i) data[i] = static_cast<uint8_t>(i * 7 + i / 251);
  ASSERT_EQ(cudaMemcpy(memory.data(), data.data(), kBytes, cudaMemcpyDefault), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(found.data(), memory.data(), kBytes, cudaMemcpyDefault), cudaSuccess);
  EXPECT_TRUE(found == data);
}

TEST_F(LentMemoryTest, LiesOnTheSecondGpuAndIsExported) {
  const LentMemory memory = required(LentMemory::create(kOwner, kUser, kBytes));
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory.data()), cudaSuccess);
  EXPECT_EQ(attributes.device, kOwner);
  const Dmabuf exported = required(export_dmabuf(memory.data() + 5000, 100, kUser));
  EXPECT_EQ(exported.offset, 5000u % 4096u);
}

TEST_F(LentMemoryTest, IsMadeWhileAStreamIsCaptured) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_TRUE(LentMemory::create(kOwner, kUser, kBytes).ok());
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

/// The stream of the application has work for long.
TEST_F(LentMemoryTest, IsMadeAndGivenBackBesideKernels) {
  constexpr size_t kLarge = size_t{4} << 30;
  void* large = nullptr;
  ASSERT_EQ(cudaMalloc(&large, kLarge), cudaSuccess);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  required(LentMemory::create(kOwner, kUser, kBytes));  // the stream that fills memory exists from now on
  for (int i = 0; i < 600; ++i) ASSERT_EQ(cudaMemsetAsync(large, i & 0xff, kLarge, stream), cudaSuccess);
  required(LentMemory::create(kOwner, kUser, kBytes));
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "the calls have waited for the kernels";
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaStreamDestroy(stream);
  cudaFree(large);
}

}  // namespace
}  // namespace tutti::cuda
