// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernel_waits.h"

#include "tutti/plugin/cuda.h"

namespace tutti::backend {

std::optional<KernelWaits::Wait> KernelWaits::observe(const Sample& sample, Clock::time_point now) {
  if (sample.seen == seen_) {  // no kernel has stored since: the wait is over
    wait_.reset();
    return wait_;
  }
  seen_ = sample.seen;
  const uint64_t begin = sample.waits & ~uint64_t{TUTTI_CUDA_WAIT_RANK};
  const bool is_later = wait_ && begin > begin_ + TUTTI_CUDA_LONG_WAIT_NS;
  if (is_later && now - begin_shown_ < kForget) return wait_;
  begin_shown_ = now;
  const bool is_same = wait_ && !is_later && begin + TUTTI_CUDA_LONG_WAIT_NS > begin_;
  if (is_same) return wait_;
  begin_ = begin;
  const std::chrono::nanoseconds waited(sample.seen > begin ? sample.seen - begin : 0);
  wait_ = Wait{now - waited, static_cast<uint32_t>(sample.waits & TUTTI_CUDA_WAIT_RANK)};
  return wait_;
}

}  // namespace tutti::backend
