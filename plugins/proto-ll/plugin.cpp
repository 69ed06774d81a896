// SPDX-License-Identifier: Apache-2.0
// Protocol "ll": 4 bytes of data and a 4-byte flag in each word, so that one line carries both. For small messages.
#include <algorithm>
#include <bit>

#include "tutti/device/host/team.h"
#include "tutti/sdk/protocol.h"
#if defined(TUTTI_HAS_CUDA)
#include "tutti/device/cuda/kernel_table.h"
#endif

namespace {

using tutti::Status;
namespace device = tutti::device;

class LLProtocol : public tutti::sdk::Protocol {
 public:
  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_SHM | 1u << TUTTI_LINK_NETWORK | 1u << TUTTI_LINK_P2P;
    out.flags_in_data = TUTTI_FLAGS_PAIRS;
    out.max_fan = 64;
    out.large_launches = 1;
    out.strands = 1;
    out.efficiency[TUTTI_LINK_SHM] = 0.06;  // measured: words cross between cores one line at a time
    out.efficiency[TUTTI_LINK_NETWORK] = 0.5;
    out.devices = TUTTI_DEVICE_HOST;
#if defined(TUTTI_HAS_CUDA)
    out.devices |= TUTTI_DEVICE_CUDA;
#endif
    out.efficiency[TUTTI_LINK_P2P] = 0.5;
    out.channel_bytes[TUTTI_LINK_P2P] = 2 << 10;
    return out;
  }

  Status layout(uint32_t link, tutti_slot_layout& layout) const override {
    if (link == TUTTI_LINK_P2P) return gpu_layout(layout);
    constexpr uint64_t kMaxPayload = 16 << 10;  // more is no longer a small message
    layout.slot_count = std::bit_ceil(layout.slot_count < 2 ? 2 : layout.slot_count);
    layout.slot_bytes = std::min((layout.slot_bytes + 63) / 64 * 64, kMaxPayload);
    if (link == TUTTI_LINK_SHM) split_slots(layout);
    layout.slot_stride = (2 * layout.slot_bytes + device::LL::kSignatureWords * sizeof(uint64_t) + 63) / 64 * 64;
    layout.chunk_slots = layout.slot_count / 2;
    return {};
  }

  int32_t run(tutti_work& work) noexcept override {
    device::HostTeam team(work);
    return device::Executor<device::HostTeam, device::LL>(team, work).run();
  }

#if defined(TUTTI_HAS_CUDA)
  int32_t load() noexcept override {
    const cudaError_t error = tutti::kernels::load_all();
    return error == cudaSuccess ? TUTTI_OK : host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }
  int32_t launch(const tutti_cuda_launch& launch, void* stream) noexcept override {
    const void* const kernel = tutti::kernels::kernel_of(launch);
    const cudaError_t error = device::start_kernel({kernel, threads_for(launch)}, launch, stream);
    return error == cudaSuccess ? TUTTI_OK : host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }
  int32_t strand_ctas(uint32_t& ctas) noexcept override {
    const cudaError_t error = device::resident_strands(tutti::kernels::kLarge, {nullptr, kMaxThreads}, 0, ctas);
    return error == cudaSuccess ? TUTTI_OK : host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }
#endif

 private:
#if defined(TUTTI_HAS_CUDA)
  static constexpr uint32_t kMaxThreads = 512;  // LLWire::kThreads of tutti/device/cuda/wire.h

  /// In one hop a thread moves the same place of all messages, else messages are dealt out to threads.
  static uint32_t threads_for(const tutti_cuda_launch& launch) {
    const uint32_t threads = std::min(launch.thread_count, kMaxThreads);
    if (!device::is_one_hop(launch)) return threads;
    const uint64_t places = std::bit_ceil(std::max<uint64_t>((launch.cut.part + 7) / 8, 64));
    return static_cast<uint32_t>(std::min<uint64_t>(places, threads));
  }
#endif

  /// Cuts the same memory into more and smaller slots. A sender gets that many messages ahead of a receiver that has no
  /// processor; a network would need a request for each slot.
  static void split_slots(tutti_slot_layout& layout) {
    constexpr uint64_t kPayload = 512;  // above a few hundred bytes Simple is faster
    const uint64_t pieces = std::bit_floor(std::max<uint64_t>(layout.slot_bytes / kPayload, 1));
    layout.slot_count *= static_cast<uint32_t>(pieces);
    layout.slot_bytes = (layout.slot_bytes / pieces + 63) / 64 * 64;
  }

  /// A thread's line for each of 512 threads per slot; a call may use half of the slots before peers must be heard.
  static Status gpu_layout(tutti_slot_layout& layout) {
    layout.slot_count = layout.slot_count == 0 ? 8 : std::bit_ceil(std::max(layout.slot_count, 4u));
    layout.slot_bytes = 4096;
    layout.slot_stride = 8192;
    layout.chunk_slots = 1;
    return {};
  }
};

}  // namespace

TUTTI_PLUGIN(LLProtocol, "ll", "0.1.0", "a flag beside every 4 bytes: low latency")
