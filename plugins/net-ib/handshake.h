// SPDX-License-Identifier: Apache-2.0
// The checks of what the other end says in the exchange (wire.h). Functions of their arguments alone: no device, no
// socket.
#pragma once

#include <string_view>

#include "tutti/sdk/handshake.h"
#include "tutti/status.h"
#include "wire.h"

namespace tutti::net_ib {

/// The handle of a listener. kInvalidArgument: it is not one of this version of the plugin.
Result<Handle> read_handle(const tutti_net_handle& raw);
/// kVersionMismatch: the listener at `place` does not speak this protocol.
Status check_challenge(const Challenge& challenge, std::string_view place);
/// Whether a Hello proves the secret. kInternal: it cannot be computed.
Result<bool> is_friend(const Handle& own, const sdk::Nonce& nonce, const Hello& hello);
/// kMismatch: the listener at `place` does not prove the secret; kSystem: it refuses, with its reason.
Status check_welcome(const Handle& there, const Challenge& challenge, const Hello& hello, const Welcome& welcome,
                     std::string_view place);
/// kMismatch: the two ends of a rail cannot be joined.
Status check_rail(const Endpoint& own, const Endpoint& peer);
/// The name of the device of an endpoint; its bytes may be anything.
std::string_view device_of(const Endpoint& endpoint);

}  // namespace tutti::net_ib
