// SPDX-License-Identifier: Apache-2.0
// A protocol that declines all layouts, and throws for small slots of a network: the texts must reach `explain`.
#include <stdexcept>

#include "tutti/sdk/protocol.h"

namespace {

using namespace tutti;

class ProtoDeclines : public sdk::Protocol {
 public:
  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_SHM | 1u << TUTTI_LINK_NETWORK | 1u << TUTTI_LINK_P2P;
    out.devices = TUTTI_DEVICE_HOST | TUTTI_DEVICE_CUDA;
    out.max_fan = 64;
    return out;
  }
  Status layout(uint32_t link, tutti_slot_layout& layout) const override {
    if (link == TUTTI_LINK_NETWORK && layout.slot_bytes < 4096) throw std::runtime_error("the ruler is broken");
    return {Code::kUnsupported, link == TUTTI_LINK_SHM ? "slots must be round" : "the GPUs are too cold"};
  }
};

}  // namespace

TUTTI_PLUGIN(ProtoDeclines, "proto_declines", "1.0", "declines the layout of connections")
