// SPDX-License-Identifier: Apache-2.0
// Waits of GPU kernels, as the host sees them in `tutti_cuda_control`.
//
// A kernel that waits for longer than TUTTI_CUDA_LONG_WAIT_NS stores the begin of its wait, the awaited rank and the
// time. The host samples these words. A wait goes on as long as the time changes between samples.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace tutti::backend {

/// Threads: one. Units: the words of a sample are nanoseconds of the GPU's clock.
class KernelWaits {
 public:
  using Clock = std::chrono::steady_clock;

  /// The two words of `tutti_cuda_control`; both 0: no kernel has waited for long.
  struct Sample {
    uint64_t waits = 0;  ///< begin of a wait, and the awaited rank in the lowest 16 bits
    uint64_t seen = 0;   ///< time at which the kernel still waited
  };
  struct Wait {
    Clock::time_point since;
    uint32_t peer = 0;  ///< the awaited rank
  };

  /// Takes a sample at the time `now`. Returns the wait that goes on; nothing: no kernel waits for long.
  ///
  /// Threads of one kernel may wait for several ranks and overwrite each other's words. The earliest begin counts until
  /// no sample has shown it for kForget.
  std::optional<Wait> observe(const Sample& sample, Clock::time_point now);

  static constexpr std::chrono::seconds kForget{2};

 private:
  uint64_t seen_ = 0;                ///< value of the latest sample
  uint64_t begin_ = 0;               ///< start of the wait that counts, by the GPU's clock
  Clock::time_point begin_shown_{};  ///< when a sample last showed that wait
  std::optional<Wait> wait_;
};

}  // namespace tutti::backend
