// SPDX-License-Identifier: Apache-2.0
// A rank at the acceptor of a hub.
#pragma once

#include "base/fd.h"
#include "bootstrap/endpoint.h"

namespace tutti::bootstrap {

/// The hello of a rank of this process, on the host of this name; knock() adds the proof.
Hello hello_of(int rank, int rank_count, base::Milliseconds peer_loss, const std::string& host);

/// Connects to a hub, and lets both sides prove that they know the secret. When ok, the hub has proved it and has got
/// the hello. `header` of the hello: its id, and the time that is left. Nothing that arrives before the hub's proof is
/// believed. kTimeout if there is no answer by the deadline; kRemote, with the reason, for a stranger at that address.
Result<base::Fd> knock(const Endpoint& hub, Header header, Hello hello, base::Time deadline);

}  // namespace tutti::bootstrap
