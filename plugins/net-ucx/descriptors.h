// SPDX-License-Identifier: Apache-2.0
// The limit of open files. UCX 1.13 ends the process if it runs out of descriptors at some places, for example
// "failed to set active message handler" in ucp_worker.c. So the plugin checks first that enough are free.
#pragma once

#include <cstddef>
#include <string_view>

#include "tutti/status.h"

namespace tutti::net_ucx {

/// More than UCX opens for a context with its worker.
inline constexpr size_t kContextDescriptors = 64;
/// More than UCX opens for an endpoint, and for endpoints of peers that it accepts meanwhile.
inline constexpr size_t kEndpointDescriptors = 16;

/// Ok if `count` descriptors are free, if need be after sdk::raise_descriptor_limit(). kUnsupported: `what` needs more;
/// the text names the limit. Another thread may take them afterwards. Any thread.
Status require_descriptors(size_t count, std::string_view what);

}  // namespace tutti::net_ucx
