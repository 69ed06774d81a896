// SPDX-License-Identifier: Apache-2.0
// A protocol with the kernels of protocol "ll", which commits one fault on GPUs, named in its setting `fault`. With
// "none" it is right. On the host it is always right.
#include <algorithm>
#include <bit>

#include "conformance/mock_fault.h"
#include "tutti/device/cuda/kernel_table.h"
#include "tutti/device/host/team.h"
#include "tutti/sdk/protocol.h"

namespace tutti::mock {
namespace {

constexpr uint32_t kMostThreads = 512;  // of the kernels

class MockCuda : public sdk::Protocol {
 public:
  static std::vector<tutti_config_key> settings() { return fault_setting(); }
  Status open(const sdk::Host& host) override {
    const std::string fault = host.text("fault");
    wrong_product_ = fault == "wrong_product";
    writes_before_ = fault == "writes_before";
    if (fault == "none" || wrong_product_ || writes_before_) return {};
    return {Code::kConfig, "settings.proto.mock_cuda.fault is '" + fault + "', which is no fault"};
  }

  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_SHM | 1u << TUTTI_LINK_NETWORK | 1u << TUTTI_LINK_P2P;
    out.flags_in_data = TUTTI_FLAGS_OWN;
    out.max_fan = 64;
    out.devices = TUTTI_DEVICE_HOST | TUTTI_DEVICE_CUDA;
    for (const uint32_t link : {TUTTI_LINK_SHM, TUTTI_LINK_NETWORK, TUTTI_LINK_P2P}) out.efficiency[link] = 0.5;
    return out;
  }

  Status layout(uint32_t link, tutti_slot_layout& layout) const override {
    const bool on_gpu = link == TUTTI_LINK_P2P;
    layout.slot_count = std::bit_ceil(std::max(layout.slot_count, 4u));
    layout.slot_bytes = 4096;
    layout.slot_stride = on_gpu ? 8192 : 8192 + 64;  // a signature follows on the host
    layout.chunk_slots = on_gpu ? 1 : layout.slot_count / 2;
    return {};
  }

  int32_t run(tutti_work& work) noexcept override {
    device::HostTeam team(work);
    return device::Executor<device::HostTeam, device::LL>(team, work).run();
  }

  int32_t load() noexcept override { return told(device::load_kernels(kernels::kAll)); }
  int32_t launch(const tutti_cuda_launch& launch, void* stream) noexcept override {
    tutti_cuda_launch changed = launch;
    if (wrong_product_ && launch.reduce_op == TUTTI_PROD) changed.reduce_op = TUTTI_SUM;
    const void* const kernel = device::find_kernel(*kernels::kAll[launch.data_type], changed);
    cudaError_t error = device::start_kernel({kernel, std::min(launch.thread_count, kMostThreads)}, changed, stream);
    if (error == cudaSuccess && writes_before_ && launch.message_count == 0) {
      error = cudaMemsetAsync(launch.output - 1, 0, 1, static_cast<cudaStream_t>(stream));
    }
    return told(error);
  }

 private:
  int32_t told(cudaError_t error) const {
    return error == cudaSuccess ? TUTTI_OK : host().fail({Code::kDevice, cudaGetErrorString(error)});
  }

  bool wrong_product_ = false;
  bool writes_before_ = false;
};

}  // namespace
}  // namespace tutti::mock

TUTTI_PLUGIN(tutti::mock::MockCuda, "mock_cuda", "1.0", "a protocol with faults on GPUs")
