// SPDX-License-Identifier: Apache-2.0
#include "integration/random/play_device.h"

#if defined(TUTTI_HAS_CUDA)
#include <fmt/format.h>

#include <vector>

#include "device/cuda/runtime.h"
#endif

namespace tutti::sequence {
namespace {

class HostPlayDevice : public PlayDevice {
 public:
  Result<std::byte*> load(std::span<std::byte> image) override { return image.data(); }
  Status finish() override { return {}; }
  Status store(std::span<std::byte>) override { return {}; }
  Stream stream(uint32_t) const override { return nullptr; }
  Status record(std::function<Status()> make) override {
    make_ = std::move(make);
    return {};
  }
  Status replay() override { return make_(); }

 private:
  std::function<Status()> make_;
};

}  // namespace

std::unique_ptr<PlayDevice> make_host_device() {
  return std::make_unique<HostPlayDevice>();
}

#if defined(TUTTI_HAS_CUDA)
namespace {

struct Release {
  void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
  void operator()(CUgraph_st* graph) const { cudaGraphDestroy(graph); }
  void operator()(CUgraphExec_st* graph) const { cudaGraphExecDestroy(graph); }
};

class GpuPlayDevice : public PlayDevice {
 public:
  Status open(uint32_t streams, size_t bytes) {
    TUTTI_ASSIGN(const int device, cuda::current_device());
    TUTTI_ASSIGN(memory_, cuda::DeviceMemory::create(device, bytes));
    for (uint32_t i = 0; i < streams; ++i) {
      cudaStream_t stream = nullptr;
      TUTTI_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
      streams_.emplace_back(stream);
      TUTTI_TRY(cuda::use_once(stream));
    }
    cudaEvent_t event = nullptr;
    TUTTI_CUDA_TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    event_.reset(event);
    return {};
  }

  Result<std::byte*> load(std::span<std::byte> image) override {
    if (image.size() > memory_.size()) {
      return Status(Code::kUnsupported, fmt::format("a round needs {} bytes, of {}", image.size(), memory_.size()));
    }
    TUTTI_CUDA_TRY(cudaMemcpyAsync(data(), image.data(), image.size(), cudaMemcpyHostToDevice, streams_[0].get()));
    TUTTI_CUDA_TRY(cudaStreamSynchronize(streams_[0].get()));
    return data();
  }

  Status finish() override {
    for (const auto& stream : streams_) TUTTI_CUDA_TRY(cudaStreamSynchronize(stream.get()));
    return {};
  }

  Status store(std::span<std::byte> image) override {
    TUTTI_CUDA_TRY(cudaMemcpyAsync(image.data(), data(), image.size(), cudaMemcpyDeviceToHost, streams_[0].get()));
    return cuda::check(cudaStreamSynchronize(streams_[0].get()), "cudaStreamSynchronize");
  }

  Stream stream(uint32_t index) const override { return streams_[index].get(); }

  Status record(std::function<Status()> make) override {
    TUTTI_CUDA_TRY(cudaStreamBeginCapture(streams_[0].get(), cudaStreamCaptureModeThreadLocal));
    const Status made = fork_and_join(make);
    cudaGraph_t captured = nullptr;
    const Status ended = cuda::check(cudaStreamEndCapture(streams_[0].get(), &captured), "cudaStreamEndCapture");
    const std::unique_ptr<CUgraph_st, Release> graph(captured);
    TUTTI_TRY(made);
    TUTTI_TRY(ended);
    cudaGraphExec_t exec = nullptr;
    TUTTI_CUDA_TRY(cudaGraphInstantiate(&exec, graph.get(), 0));
    graph_.reset(exec);
    return {};
  }

  Status replay() override { return cuda::check(cudaGraphLaunch(graph_.get(), streams_[0].get()), "cudaGraphLaunch"); }

 private:
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.data()); }

  Status order(uint32_t before, uint32_t after) {
    TUTTI_CUDA_TRY(cudaEventRecord(event_.get(), streams_[before].get()));
    return cuda::check(cudaStreamWaitEvent(streams_[after].get(), event_.get(), 0), "cudaStreamWaitEvent");
  }

  /// All streams belong to the capture while `make` runs.
  Status fork_and_join(const std::function<Status()>& make) {
    const auto count = static_cast<uint32_t>(streams_.size());
    for (uint32_t i = 1; i < count; ++i) TUTTI_TRY(order(0, i));
    Status made = make();
    for (uint32_t i = 1; i < count; ++i) TUTTI_TRY(order(i, 0));
    return made;
  }

  cuda::DeviceMemory memory_;
  std::vector<std::unique_ptr<CUstream_st, Release>> streams_;
  std::unique_ptr<CUevent_st, Release> event_;
  std::unique_ptr<CUgraphExec_st, Release> graph_;
};

}  // namespace

Result<std::unique_ptr<PlayDevice>> make_gpu_device(uint32_t streams, size_t most_bytes) {
  auto device = std::make_unique<GpuPlayDevice>();
  TUTTI_TRY(device->open(streams, most_bytes));
  return std::unique_ptr<PlayDevice>(std::move(device));
}
#else
Result<std::unique_ptr<PlayDevice>> make_gpu_device(uint32_t, size_t) {
  return Status(Code::kUnsupported, "this build has no CUDA");
}
#endif

}  // namespace tutti::sequence
