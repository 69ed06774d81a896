// SPDX-License-Identifier: Apache-2.0
// The content of a UniqueId.
#pragma once

#include <string_view>

#include "base/socket.h"
#include "bootstrap/wire.h"
#include "tutti/unique_id.h"

namespace tutti::bootstrap {

/// The address of a hub, and the secret that it demands.
struct Endpoint {
  base::SocketAddress address;
  Secret secret;
};

/// The secret that 32 hexadecimal digits state; kInvalidArgument for other texts, without the text.
Result<Secret> parse_secret(std::string_view hex);
UniqueId to_unique_id(const Endpoint& endpoint);
Result<Secret> random_secret();
/// kInvalidArgument for bytes that are no id, kVersionMismatch for an id with a different layout.
Result<Endpoint> endpoint_of(const UniqueId& id);

}  // namespace tutti::bootstrap
