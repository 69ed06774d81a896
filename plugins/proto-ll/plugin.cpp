// SPDX-License-Identifier: Apache-2.0
// Protocol "ll": 4 bytes of data and a 4-byte flag in each word, so that one line carries both. For small messages.
#include <algorithm>
#include <bit>

#include "tutti/device/host/team.h"
#include "tutti/sdk/protocol.h"

namespace {

using tutti::Status;
namespace device = tutti::device;

class LLProtocol : public tutti::sdk::Protocol {
 public:
  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_SHM | 1u << TUTTI_LINK_NETWORK | 1u << TUTTI_LINK_P2P;
    out.max_fan = 64;
    out.efficiency[TUTTI_LINK_SHM] = 0.06;  // measured: words cross between cores one line at a time
    out.efficiency[TUTTI_LINK_NETWORK] = 0.5;
    out.efficiency[TUTTI_LINK_P2P] = 0.5;
    return out;
  }

  Status layout(uint32_t /*link*/, tutti_slot_layout& layout) const override {
    constexpr uint64_t kMaxPayload = 16 << 10;  // more is no longer a small message
    layout.slot_count = std::bit_ceil(layout.slot_count < 2 ? 2 : layout.slot_count);
    layout.slot_bytes = std::min((layout.slot_bytes + 63) / 64 * 64, kMaxPayload);
    layout.slot_stride = (2 * layout.slot_bytes + device::LL::kSignatureWords * sizeof(uint64_t) + 63) / 64 * 64;
    layout.chunk_slots = layout.slot_count / 2;
    return {};
  }

  int32_t run(tutti_work& work) noexcept override {
    device::HostTeam team(work);
    return device::Executor<device::HostTeam, device::LL>(team, work).run();
  }
};

}  // namespace

TUTTI_PLUGIN(LLProtocol, "ll", "0.1.0", "a flag beside every 4 bytes: low latency")
