// SPDX-License-Identifier: Apache-2.0
// A protocol outside Tutti's tree: each message takes one slot. It runs on the host only. The executor of the SDK runs
// the plans; the wire `Simple` puts a header before the data of a slot.
#include <algorithm>
#include <bit>

#include "tutti/device/host/team.h"
#include "tutti/sdk/protocol.h"

namespace {

using namespace tutti;

class WholeSlotsProtocol : public sdk::Protocol {
 public:
  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_SHM | 1u << TUTTI_LINK_NETWORK;
    out.max_fan = 64;
    out.devices = TUTTI_DEVICE_HOST;
    for (const uint32_t link : {TUTTI_LINK_SHM, TUTTI_LINK_NETWORK}) {
      out.latency_us[link] = 0.2;  // an estimate; measure the wire, and write what it adds to each hop
      out.efficiency[link] = 1;
    }
    return out;
  }

  Status layout(uint32_t link, tutti_slot_layout& layout) const override {
    if (link != TUTTI_LINK_SHM && link != TUTTI_LINK_NETWORK) {
      return {Code::kUnsupported, "the protocol runs on the host only"};
    }
    layout.slot_count = std::bit_ceil(std::max(layout.slot_count, 2u));
    layout.slot_bytes = (std::max<uint64_t>(layout.slot_bytes, 64) + 63) / 64 * 64;
    layout.slot_stride = layout.slot_bytes + device::Simple::kHeaderBytes;
    layout.chunk_slots = layout.slot_count / 2;  // while one half is read, the other half is written
    return {};
  }

  int32_t run(tutti_work& work) noexcept override {
    device::HostTeam team(work);
    return device::Executor<device::HostTeam, device::Simple>(team, work).run();
  }
};

}  // namespace

TUTTI_PLUGIN(WholeSlotsProtocol, "whole_slots", "1.0.0", "one slot per message, on the host")
