// SPDX-License-Identifier: Apache-2.0
// The list of peers of a plan that the host changes or copies.
#pragma once

#include <fmt/format.h>

#include <span>
#include <vector>

#include "tutti/plugin/plan.h"
#include "tutti/sdk/peer_list.h"
#include "tutti/status.h"

namespace tutti::program {

/// sdk::PeerList, with an error for more peers than a step can name.
class PeerPool {
 public:
  explicit PeerPool(std::vector<tutti_plan_peer>& peers) : list_(peers) {}

  /// As sdk::PeerList::place().
  Status intern(std::span<const tutti_plan_peer> range, uint16_t& begin) {
    if (list_.place(range, begin)) return {};
    return {Code::kUnsupported, fmt::format("the steps name more than {} different peers", UINT16_MAX)};
  }

 private:
  sdk::PeerList list_;
};

}  // namespace tutti::program
