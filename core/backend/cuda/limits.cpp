// SPDX-License-Identifier: Apache-2.0
#include "backend/limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/stripes.h"
#include "program/lower.h"
#include "program/lower_strands.h"
#include "program/passes/fit_slots.h"
#include "program/passes/split_messages.h"

namespace tutti::backend {
namespace {

class GpuBackEnd final : public tuner::BackEnd {
 public:
  Status takes(uint32_t rank_count) const override {
    if (rank_count <= TUTTI_CUDA_MAX_RANKS) return {};
    return {Code::kUnsupported, fmt::format("a communicator on GPUs takes up to {} ranks, not {}; make smaller "
                                            "communicators, or set device to host",
                                            TUTTI_CUDA_MAX_RANKS, rank_count)};
  }
  Status runs(const program::Plan& plan) const override {
    return runs_as_messages(plan) ? Status() : check(plan, program::check_kernel_limits);
  }
  /// With the fewest slots that a connection may have.
  Status runs_together(std::span<const program::Plan> all_ranks) const override {
    if (std::ranges::any_of(all_ranks, runs_as_messages)) return all_as_messages(all_ranks);
    if (!std::ranges::all_of(all_ranks, program::has_long_messages)) return {};
    return program::split_and_fit({all_ranks.begin(), all_ranks.end()}, program::kLeastSlots).status();
  }
  std::string why_lists(std::span<const program::Plan> all_ranks) const override {
    return program::why_in_lists(all_ranks);
  }
  Status takes_small(uint32_t rank_count) const override {
    if (rank_count <= TUTTI_CUDA_SMALL_RANKS) return {};
    return {Code::kUnsupported,
            fmt::format("needs {} ranks; this protocol runs up to {}", rank_count, TUTTI_CUDA_SMALL_RANKS)};
  }
  Status runs_small(const program::Plan& plan) const override { return check(plan, program::check_small_form); }

 private:
  static Status all_as_messages(std::span<const program::Plan> all_ranks) {
    const auto found =
        std::ranges::find_if(all_ranks, [](const program::Plan& plan) { return !hops_of(plan).has_value(); });
    if (found == all_ranks.end()) return {};
    return {Code::kUnsupported, fmt::format("the plan of a rank needs more than {} connections, and the plan of rank "
                                            "{} has other steps than single sends and receives of whole blocks",
                                            TUTTI_CUDA_MAX_CONNECTIONS, found->rank)};
  }
  /// Kernels run plans with messages of one chunk.
  static Status check(const program::Plan& plan, Status (*limits)(const program::Plan&)) {
    if (!program::has_long_messages(plan)) return limits(plan);
    TUTTI_ASSIGN(const program::Plan split, program::split_messages(plan));
    return limits(split);
  }
};

}  // namespace

const tuner::BackEnd& gpu_back_end() {
  static const GpuBackEnd kBackEnd;
  return kBackEnd;
}

}  // namespace tutti::backend
