// SPDX-License-Identifier: Apache-2.0
// Protocol "ll128": lines of 120 bytes of data and an 8-byte flag. For messages of some KiB to some MiB between GPUs.
#include <algorithm>
#include <bit>

#include "tutti/sdk/protocol.h"
#if defined(TUTTI_HAS_CUDA)
#include "tutti/device/cuda/kernel_table.h"
#endif

namespace {

using tutti::Status;

class LL128Protocol : public tutti::sdk::Protocol {
 public:
  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_P2P;
    out.flags_in_data = TUTTI_FLAGS_OWN;
    out.max_fan = TUTTI_CUDA_MAX_CONNECTIONS;
    out.large_launches = 1;
    out.strands = 1;
    out.efficiency[TUTTI_LINK_P2P] = 120.0 / 128.0;
    out.channel_bytes[TUTTI_LINK_P2P] = 8 << 10;
#if defined(TUTTI_HAS_CUDA)
    out.devices = TUTTI_DEVICE_CUDA;
#endif
    return out;
  }

  Status layout(uint32_t link, tutti_slot_layout& layout) const override {
    if (link != TUTTI_LINK_P2P) {
      return {tutti::Code::kUnsupported, "ll128 works between GPUs only: elsewhere lines may arrive in parts"};
    }
    constexpr uint64_t kLines = 256;  // 30 KiB
    layout.slot_count = layout.slot_count == 0 ? 4 : std::bit_ceil(std::max(layout.slot_count, 4u));
    layout.slot_bytes = kLines * 120;
    layout.slot_stride = kLines * 128;
    layout.chunk_slots = 1;
    return {};
  }

#if defined(TUTTI_HAS_CUDA)
  int32_t load() noexcept override {
    const cudaError_t error = tutti::kernels::load_all();
    return error == cudaSuccess ? TUTTI_OK : host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }
  int32_t launch(const tutti_cuda_launch& launch, void* stream) noexcept override {
    const void* const kernel = tutti::kernels::kernel_of(launch);
    const uint32_t threads = std::clamp(launch.thread_count / 2, 64u, kMaxThreads);  // each moves 16 bytes, not 8
    const cudaError_t error = tutti::device::start_kernel({kernel, threads}, launch, stream);
    return error == cudaSuccess ? TUTTI_OK : host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }
  int32_t strand_ctas(uint32_t& ctas) noexcept override {
    const cudaError_t error = tutti::device::resident_strands(tutti::kernels::kLarge, {nullptr, kMaxThreads}, 0, ctas);
    return error == cudaSuccess ? TUTTI_OK : host().fail({tutti::Code::kDevice, cudaGetErrorString(error)});
  }

 private:
  static constexpr uint32_t kMaxThreads = 384;  // LL128Wire::kThreads of tutti/device/cuda/wire.h
#endif
};

}  // namespace

TUTTI_PLUGIN(LL128Protocol, "ll128", "0.1.0", "a flag in every 128 bytes: low latency at nearly full bandwidth")
