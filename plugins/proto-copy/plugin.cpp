// SPDX-License-Identifier: Apache-2.0
// Protocol "copy": the GPU's copy engines store whole blocks to registered outputs. For large calls.
#include <algorithm>

#include "tutti/sdk/protocol.h"
#if defined(TUTTI_HAS_CUDA)
#include <cuda_runtime.h>

#include "kernels.h"
#endif

namespace {

using tutti::Status;

#if defined(TUTTI_HAS_CUDA)

namespace kernels = tutti::copy_kernels;

// For the copy of the own block. It has as much time as the copies to peers: these take about 500 GB/s together.
constexpr uint64_t kMostBlocks = 16;
constexpr uint64_t kBytesOfBlock = 64 << 10;

/// The work that one launch enqueues.
class Enqueuing {
 public:
  Enqueuing(const tutti_cuda_launch& launch, void* stream)
      : launch_(launch),
        copies_(launch.copies),
        stream_(static_cast<cudaStream_t>(stream)),
        side_(static_cast<cudaStream_t>(launch.copies.side)) {}

  cudaError_t run() {
    // On the default stream, copies to a peer GPU would wait for all earlier work of both GPUs.
    const bool is_default = stream_ == nullptr || stream_ == cudaStreamLegacy;
    if (is_default) {
      copy_aside();
    } else {
      keep_aside();
    }
    check(start(kernels::kPart, 1, kernels::kWarp, stream_));
    return error_;
  }

 private:
  void keep_aside() {
    const bool keeps = copies_.has_own != 0;
    if (keeps) lead(stream_, copies_.fork, side_);
    if (keeps) keep_own(side_);
    check(start(kernels::kMeet, 1, kernels::kWarp, stream_));
    copy_to_peers(stream_);
    if (keeps) lead(side_, copies_.join, stream_);
  }
  void copy_aside() {
    check(start(kernels::kMeet, 1, kernels::kWarp, stream_));
    lead(stream_, copies_.fork, side_);
    copy_to_peers(side_);
    if (copies_.has_own != 0) keep_own(stream_);
    lead(side_, copies_.join, stream_);
  }

  void check(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

  cudaError_t start(const void* kernel, uint32_t blocks, uint32_t threads, cudaStream_t stream) {
    void* arguments[] = {const_cast<tutti_cuda_launch*>(&launch_)};
    return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, stream);
  }

  /// Orders the later work of `to` after the earlier work of `from`.
  void lead(cudaStream_t from, void* event, cudaStream_t to) {
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), from));
    check(cudaStreamWaitEvent(to, static_cast<cudaEvent_t>(event), 0));
  }

  void keep_own(cudaStream_t stream) {
    const uint64_t blocks = std::clamp<uint64_t>(launch_.block_bytes / kBytesOfBlock, 1, kMostBlocks);
    const void* const kernel = launch_.data_type == TUTTI_UINT64   ? kernels::kKeepLongs
                               : launch_.data_type == TUTTI_UINT32 ? kernels::kKeepWords
                                                                   : kernels::kKeepBytes;
    check(start(kernel, static_cast<uint32_t>(blocks), kernels::kThreads, stream));
  }

  /// Copies after the outputs are free. If the kernel that waits for this was not enqueued, there are no copies.
  void copy_to_peers(cudaStream_t stream) {
    if (error_ != cudaSuccess) return;
    for (uint32_t i = 0; i < copies_.count; ++i) {
      const tutti_cuda_copy& copy = copies_.list[i];
      check(cudaMemcpyAsync(launch_.outputs[copy.peer] + copy.to, launch_.input + copy.from, launch_.block_bytes,
                            cudaMemcpyDeviceToDevice, stream));
    }
  }

  const tutti_cuda_launch& launch_;
  const tutti_cuda_copies& copies_;
  cudaStream_t stream_;
  cudaStream_t side_;
  cudaError_t error_ = cudaSuccess;
};

#endif

class CopyProtocol : public tutti::sdk::Protocol {
 public:
  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_P2P;
    out.needs_registered = 1;
    out.flags_in_data = TUTTI_FLAGS_NONE;
    out.max_fan = TUTTI_CUDA_SMALL_RANKS;
    out.efficiency[TUTTI_LINK_P2P] = 390.0 / 370.0;  // relative to stores of SMs: packets are twice as long
#if defined(TUTTI_HAS_CUDA)
    out.devices = TUTTI_DEVICE_CUDA;
#endif
    return out;
  }

  /// The protocol needs mailboxes and no slots; no slots are made.
  Status layout(uint32_t link, tutti_slot_layout& layout) const override {
    if (link != TUTTI_LINK_P2P)
      return {tutti::Code::kUnsupported, "copy works between GPUs that reach each other only"};
    layout.slot_count = 4;
    layout.slot_bytes = layout.slot_stride = 512;
    layout.chunk_slots = 1;
    layout.max_channels = 1;
    return {};
  }

#if defined(TUTTI_HAS_CUDA)
  int32_t load() noexcept override {
    for (const void* kernel :
         {kernels::kMeet, kernels::kPart, kernels::kKeepBytes, kernels::kKeepWords, kernels::kKeepLongs}) {
      cudaFuncAttributes attributes;
      if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess)
        return fail(error);
    }
    return TUTTI_OK;
  }
  int32_t launch(const tutti_cuda_launch& launch, void* stream) noexcept override {
    const cudaError_t error = Enqueuing(launch, stream).run();
    return error == cudaSuccess ? TUTTI_OK : fail(error);
  }

 private:
  int32_t fail(cudaError_t error) {
    return host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }
#endif
};

}  // namespace

TUTTI_PLUGIN(CopyProtocol, "copy", "0.1.0", "copy engines store to registered outputs: full bandwidth without SMs")
