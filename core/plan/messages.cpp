// SPDX-License-Identifier: Apache-2.0
#include "plan/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "plan/lower.h"

namespace tutti::plan {
namespace {

/// Whole clusters, where there are so many.
uint32_t ctas_for(uint32_t lanes, uint32_t most) {
  if (lanes < TUTTI_CUDA_CLUSTER) return std::min(lanes, most);
  return std::min((lanes + TUTTI_CUDA_CLUSTER - 1) / TUTTI_CUDA_CLUSTER * TUTTI_CUDA_CLUSTER, most);
}

}  // namespace

Result<std::vector<uint32_t>> lay_out(std::span<const Message> messages, const tutti_slot_layout& layout,
                                      uint32_t most_ctas, tutti_cuda_launch& launch) {
  if (messages.size() > TUTTI_CUDA_MAX_MESSAGES) {
    return Status(Code::kUnsupported, fmt::format("a group with more than {} sends and receives of different peers",
                                                  TUTTI_CUDA_MAX_MESSAGES));
  }
  const auto place = [&](uint32_t index) {
    const Message& message = messages[index];
    const uint32_t ahead = message.receives ? launch.rank - message.peer : message.peer - launch.rank;
    return std::tuple(message.receives, (ahead + launch.rank_count) % launch.rank_count);
  };
  std::vector<uint32_t> order(messages.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return place(a) < place(b); });
  std::vector<uint32_t> places(messages.size());
  uint32_t lanes[2] = {};  // of sends, of receives
  for (const uint32_t index : order) {
    const Message& message = messages[index];
    places[index] = launch.message_count;
    tutti_cuda_message& out = launch.messages[launch.message_count++];
    out = {};
    out.bytes = message.bytes;
    out.peer = static_cast<uint8_t>(message.peer);
    out.receives = message.receives ? 1 : 0;
    out.lane_count = static_cast<uint8_t>(message.lanes);
    out.cut = cut_message(message.bytes, message.lanes, layout);
    lanes[out.receives] += message.lanes;
  }
  launch.send_ctas = ctas_for(lanes[0], most_ctas);
  launch.cta_count = launch.send_ctas + ctas_for(lanes[1], most_ctas);
  return places;
}

}  // namespace tutti::plan
