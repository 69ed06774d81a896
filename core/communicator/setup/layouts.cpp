// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "log/log.h"
#include "plugin/loader.h"

namespace tutti::communicator {
namespace {

/// Of a connection that is never made: as little as there can be.
tutti_slot_layout least_layout() {
  tutti_slot_layout layout{};
  layout.struct_size = sizeof layout;
  layout.slot_count = 2;
  layout.slot_bytes = layout.slot_stride = 64;
  layout.chunk_slots = 1;
  return layout;
}

/// False: the plugin declines.
Result<bool> ask(tuner::Protocol& protocol, const SlotRequest& request, tutti_slot_layout& layout) {
  layout = {};
  layout.struct_size = sizeof layout;
  layout.slot_count = request.slot_count;
  layout.slot_bytes = request.slot_bytes;
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code = protocol.ops->layout(protocol.plugin, request.link, &layout);
  if (code == TUTTI_OK) return true;
  if (code != TUTTI_UNSUPPORTED) {
    return Status(code == TUTTI_AGAIN ? Code::kInternal : static_cast<Code>(code),
                  fmt::format("protocol '{}' cannot lay out a connection: {}", protocol.name, plugin::take_reason()));
  }
  protocol.declined[request.link] = plugin::take_reason();
  protocol.properties.links &= ~(1u << request.link);
  log::info("protocol '{}' declines a connection: {}", protocol.name, protocol.declined[request.link]);
  return false;
}

Status check(const tuner::Protocol& protocol, const tutti_slot_layout& layout) {
  const bool right = layout.slot_bytes >= 64 && layout.slot_stride % 64 == 0 && layout.slot_count >= 2 &&
                     std::has_single_bit(layout.slot_count) && layout.message_slots <= layout.slot_count / 2;
  if (right) return {};
  return {Code::kInternal,
          fmt::format("protocol '{}' lays out {} slots of {} bytes every {} bytes, {} for a message; it must be a "
                      "power of two from 2, at least 64 bytes, a multiple of 64, and at most half of the slots",
                      protocol.name, layout.slot_count, layout.slot_bytes, layout.slot_stride, layout.message_slots)};
}

}  // namespace

Result<transport::KeySpace> lay_out(std::vector<tuner::Protocol>& protocols, const SlotRequest& request,
                                    uint32_t channels) {
  transport::KeySpace keys;
  keys.channels = channels;
  for (tuner::Protocol& protocol : protocols) {
    tutti_slot_layout& layout = keys.protocols.emplace_back(least_layout());
    if ((protocol.properties.links >> request.link & 1) == 0) continue;
    TUTTI_ASSIGN(const bool accepts, ask(protocol, request, layout));
    if (!accepts) {
      layout = least_layout();
      continue;
    }
    TUTTI_TRY(check(protocol, layout));
    layout.chunk_slots = std::clamp(layout.chunk_slots, 1u, layout.slot_count);
  }
  return keys;
}

Status ask_for_gpus(std::vector<tuner::Protocol>& protocols, const SlotRequest& request) {
  for (tuner::Protocol& protocol : protocols) {
    if ((protocol.properties.devices & TUTTI_DEVICE_CUDA) == 0) continue;
    tutti_slot_layout layout{};
    TUTTI_ASSIGN(const bool accepts, ask(protocol, request, layout));
    if (!accepts) protocol.properties.devices &= ~static_cast<uint32_t>(TUTTI_DEVICE_CUDA);
  }
  return {};
}

}  // namespace tutti::communicator
