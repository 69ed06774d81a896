// SPDX-License-Identifier: Apache-2.0
#include "backend/limits.h"

#include <fmt/format.h>

#include "program/lower.h"

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
  Status runs(const program::Plan& plan) const override { return program::check_kernel_limits(plan); }
  Status takes_small(uint32_t rank_count) const override {
    if (rank_count <= TUTTI_CUDA_SMALL_RANKS) return {};
    return {Code::kUnsupported,
            fmt::format("needs {} ranks; this protocol runs up to {}", rank_count, TUTTI_CUDA_SMALL_RANKS)};
  }
  Status runs_small(const program::Plan& plan) const override { return program::check_small_form(plan); }
};

}  // namespace

const tuner::BackEnd& gpu_back_end() {
  static const GpuBackEnd kBackEnd;
  return kBackEnd;
}

}  // namespace tutti::backend
