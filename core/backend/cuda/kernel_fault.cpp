// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernel_fault.h"

#include <fmt/format.h>

namespace tutti::backend {

Status kernel_fault(const tutti_cuda_control& control, uint32_t rank, std::chrono::nanoseconds timeout,
                    std::string_view connections, bool shares_context) {
  const auto code = static_cast<Code>(control.fault);
  if (code == Code::kMismatch) {
    return {code,
            fmt::format("the outputs of ranks {} and {} lie at different places of registered buffers, or in different "
                        "ones; on all ranks they must lie in buffers that were registered together, at the same offset",
                        rank, control.peer)};
  }
  const double seconds = std::chrono::duration<double>(timeout).count();
  if (control.peer == rank) {
    return {code, fmt::format("a GPU kernel made no progress for at least {} s (timeouts.operation): on channel {}, a "
                              "thread block of rank {} waits for work of the same kernel, and no thread block waits "
                              "for another rank; run fewer programs on this GPU beside Tutti, or set channels to a "
                              "smaller number",
                              seconds, control.channel, rank)};
  }
  return {code, fmt::format("GPU kernels made no progress for {} s (timeouts.operation): rank {} waits for rank {} on "
                            "channel {}; did that rank make the same call, and with an output in a registered buffer "
                            "if this one did?{}{}{}",
                            seconds, rank, control.peer, control.channel,
                            shares_context ? " Ranks of this process share a GPU, and a stream waits at its first use "
                                             "for all kernels: use each stream once before the first call of any rank."
                                           : "",
                            connections.empty() ? "" : " The connections: ", connections)};
}

}  // namespace tutti::backend
