// SPDX-License-Identifier: Apache-2.0
// Protocol "simple": plain data in slots, counters say when they are full. For everything but small messages.
#include <algorithm>
#include <atomic>
#include <bit>

#include "tutti/device/host/team.h"
#include "tutti/sdk/protocol.h"
#if defined(TUTTI_HAS_CUDA)
#include "tutti/device/cuda/kernel_table.h"
#include "tutti/device/cuda/pipeline_size.h"
#endif

namespace {

using tutti::Status;
namespace device = tutti::device;

class SimpleProtocol : public tutti::sdk::Protocol {
 public:
  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_SHM | 1u << TUTTI_LINK_NETWORK | 1u << TUTTI_LINK_P2P;
    out.max_fan = 64;
    out.large_launches = 1;
    out.strands = 1;
    out.scattered_slots = 1;
    // Measured: a second line to fetch, data and counter.
    out.latency_us[TUTTI_LINK_SHM] = 0.2;
    out.latency_us[TUTTI_LINK_NETWORK] = 0.3;
    out.efficiency[TUTTI_LINK_SHM] = 1;
    out.efficiency[TUTTI_LINK_NETWORK] = 1;
    out.efficiency[TUTTI_LINK_P2P] = 1;
    out.channel_bytes[TUTTI_LINK_P2P] = 64 << 10;
    out.devices = TUTTI_DEVICE_HOST;
#if defined(TUTTI_HAS_CUDA)
    out.devices |= TUTTI_DEVICE_CUDA;
    out.direct_store = 1;
#endif
    return out;
  }

  Status layout(uint32_t link, tutti_slot_layout& layout) const override {
    if (link == TUTTI_LINK_P2P) return gpu_layout(layout);
    layout.slot_count = std::bit_ceil(layout.slot_count < 2 ? 2 : layout.slot_count);
    layout.slot_bytes = (layout.slot_bytes + 63) / 64 * 64;
    layout.slot_stride = layout.slot_bytes + device::Simple::kHeaderBytes;
    // Half of the messages that fit: while one chunk is read the next is written.
    layout.chunk_slots = layout.slot_count / 2;
    if (link == TUTTI_LINK_SHM) split_slots(layout);
    return {};
  }

  int32_t run(tutti_work& work) noexcept override {
    device::HostTeam team(work);
    return device::Executor<device::HostTeam, device::Simple>(team, work).run();
  }

#if defined(TUTTI_HAS_CUDA)
  int32_t load() noexcept override {
    cudaError_t error = room(device::kSmallSize, most_stages_);
    if (error == cudaSuccess) error = room(device::kLargeSize, most_large_stages_);
    const uint32_t bytes = most_stages_ * device::kStageBytes;
    if (error == cudaSuccess) error = device::load_kernels(tutti::kernels::kAll, bytes);
    const uint32_t large_bytes = most_large_stages_ * device::kStageBytes;
    if (error == cudaSuccess) error = device::load_kernels(tutti::kernels::kLarge, large_bytes);
    if (error != cudaSuccess) return fail(error);
    const void* const any = tutti::kernels::kAll[TUTTI_UINT64]->messages;
    in_clusters_ = bytes > 0 && device::fits_in_clusters({any, device::kPipelineThreads, bytes});
    return TUTTI_OK;
  }
  int32_t launch(const tutti_cuda_launch& launch, void* stream) noexcept override {
    const bool is_large = device::is_large(launch);
    const uint32_t few = device::has_strands(launch) ? few_strands_.load() : device::kFewCtas;
    const bool has_own_sms = device::ctas_of(launch) <= few && launch.shares_gpu == 0;
    const uint32_t most = is_large ? most_large_stages_ : most_stages_;
    const uint32_t shared = is_large ? device::kLargeSize.stages : device::kSmallSize.stages;
    const uint32_t bytes = (has_own_sms ? most : std::min(most, shared)) * device::kStageBytes;
    const device::Start start = {tutti::kernels::kernel_of(launch), device::kPipelineThreads, bytes, in_clusters_};
    const cudaError_t error = device::start_kernel(start, launch, stream);
    return error == cudaSuccess ? TUTTI_OK : fail(error);
  }
  int32_t strand_ctas(uint32_t& ctas) noexcept override {
    cudaError_t error = room(device::kLargeSize, most_large_stages_);
    const uint32_t most_bytes = most_large_stages_ * device::kStageBytes;
    const uint32_t shared_bytes = std::min(most_large_stages_.load(), device::kLargeSize.stages) * device::kStageBytes;
    const auto ask = [&](uint32_t bytes, uint32_t& held) {
      const device::Start start = {nullptr, device::kPipelineThreads, bytes};
      return device::resident_strands(tutti::kernels::kLarge, start, most_bytes, held);
    };
    uint32_t few = 0;
    if (error == cudaSuccess) error = ask(most_bytes, few);
    if (error == cudaSuccess) error = ask(shared_bytes, ctas);
    few_strands_ = std::min(few, device::kFewCtas);
    return error == cudaSuccess ? TUTTI_OK : fail(error);
  }
#endif

 private:
#if defined(TUTTI_HAS_CUDA)
  int32_t fail(cudaError_t error) {
    return host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }

  /// The pipeline's stages that fit the shared memory of a CTA on the calling thread's GPU. None if the GPU has no bulk
  /// copies, or if an SM has no room for the required number of CTAs.
  static cudaError_t room(const device::PipelineSize& size, std::atomic<uint32_t>& stages) {
    int gpu = 0;
    int major = 0;
    int most = 0;
    int most_of_sm = 0;
    cudaError_t error = cudaGetDevice(&gpu);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
    if (error == cudaSuccess) {
      error = cudaDeviceGetAttribute(&most_of_sm, cudaDevAttrMaxSharedMemoryPerMultiprocessor, gpu);
    }
    const uint32_t least = device::kPipelinesPerSm * (size.stages * device::kStageBytes + size.own_bytes);
    if (major < 9 || static_cast<uint32_t>(most_of_sm) < least) return error;
    stages = std::min((static_cast<uint32_t>(most) - size.own_bytes) / device::kStageBytes, device::kMostStages);
    return error;
  }

  std::atomic<uint32_t> most_stages_ = 0;
  std::atomic<uint32_t> most_large_stages_ = 0;  // of the large form
  std::atomic<uint32_t> few_strands_ = 0;        // CTAs of a launch with strands that have SMs of their own, at most
  std::atomic<bool> in_clusters_ = false;
#endif

  /// Cuts the same memory into smaller slots; a message takes as many as it needs. A sender then gets many small
  /// messages ahead of a receiver that has no processor. At the end of the memory, up to one message's slots stay
  /// empty.
  static void split_slots(tutti_slot_layout& layout) {
    constexpr uint32_t kLeastMessages = 4;
    constexpr uint64_t kLeastBytes = 1024;
    constexpr uint64_t kMostPieces = 32;
    const uint64_t pieces = std::bit_floor(std::clamp<uint64_t>(layout.slot_bytes / kLeastBytes, 1, kMostPieces));
    if (pieces == 1 || layout.slot_count < kLeastMessages) return;
    layout.message_slots = static_cast<uint32_t>(pieces);
    layout.slot_stride = ((layout.slot_stride + pieces - 1) / pieces + 63) / 64 * 64;
    layout.chunk_slots = (layout.slot_count - 1) / 2;
    layout.slot_count *= layout.message_slots;
  }

  /// A slot holds four tiles of the pipeline: fewer tiles would cost more steps of its planner. A chunk takes half of
  /// the slots: while one half is read, the other half is written.
  static Status gpu_layout(tutti_slot_layout& layout) {
    constexpr uint64_t kGrain = 512;  // data that a warp moves at once
    const uint64_t wanted = layout.slot_bytes == 0 ? 64 << 10 : std::max<uint64_t>(layout.slot_bytes, 4096);
    layout.slot_count = layout.slot_count == 0 ? 16 : std::bit_ceil(std::max(layout.slot_count, 4u));
    layout.slot_bytes = layout.slot_stride = (wanted + kGrain - 1) / kGrain * kGrain;
    layout.chunk_slots = layout.slot_count / 2;
    layout.overlaps = 1;
    layout.max_channels = TUTTI_CUDA_MAX_CTAS;
    return {};
  }
};

}  // namespace

TUTTI_PLUGIN(SimpleProtocol, "simple", "0.1.0", "plain data and counters: full bandwidth")
