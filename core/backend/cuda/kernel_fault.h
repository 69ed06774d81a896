// SPDX-License-Identifier: Apache-2.0
// The failure that a kernel reports when it gives up by itself. Needs no GPU.
#pragma once

#include <chrono>
#include <string_view>

#include "tutti/plugin/cuda.h"
#include "tutti/status.h"

namespace tutti::backend {

/// `control`: its `fault` is not 0. `rank`: the rank whose kernel gave up. `timeout`: the limit of a wait in a kernel.
/// `connections`: the state of the connections of the host to the awaited rank; empty: none. `shares_context`: whether
/// ranks of this process share the GPU. Any thread.
Status kernel_fault(const tutti_cuda_control& control, uint32_t rank, std::chrono::nanoseconds timeout,
                    std::string_view connections, bool shares_context);

}  // namespace tutti::backend
