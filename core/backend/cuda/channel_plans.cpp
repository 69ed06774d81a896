// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/channel_plans.h"

#include <utility>

#include "program/passes/order_strands.h"

namespace tutti::backend {

void PlanCollector::add(std::vector<program::Plan> all_ranks) {
  if (plans_.empty()) {
    first_ = program::fingerprint(all_ranks);
  } else if (plans_.size() == 1 && !program::any_strands(all_ranks) && program::fingerprint(all_ranks) == first_) {
    ++left_out_;
    return;
  }
  for (; left_out_ > 0; --left_out_) {
    const auto channel = static_cast<uint32_t>(plans_.size());
    plans_.push_back(plans_.front());
    for (program::Plan& plan : plans_.back()) plan.channel = channel;
  }
  plans_.push_back(std::move(all_ranks));
}

}  // namespace tutti::backend
