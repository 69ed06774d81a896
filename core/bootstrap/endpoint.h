// SPDX-License-Identifier: Apache-2.0
// What is in a UniqueId.
#pragma once

#include "base/socket.h"
#include "bootstrap/wire.h"
#include "tutti/unique_id.h"

namespace tutti::bootstrap {

/// Where a hub listens, and what it wants to hear.
struct Endpoint {
  base::SocketAddress address;
  Secret secret;
};

UniqueId to_unique_id(const Endpoint& endpoint);
/// kInvalidArgument for bytes that are no id, kVersionMismatch for one of another layout.
Result<Endpoint> endpoint_of(const UniqueId& id);

}  // namespace tutti::bootstrap
