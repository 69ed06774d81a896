// SPDX-License-Identifier: Apache-2.0
// Sentences for completions with an error, and for the end of a TCP connection: reason and remedy.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>

#include "device.h"
#include "settings.h"
#include "tutti/status.h"

namespace tutti::net_ib {

/// kRemote where the peer or the path to it may be the cause; else kDevice or kInternal. `peer`: the device at the
/// other end.
Status failure_of(const ibv_wc& completion, const Port& port, std::string_view peer, const Settings& settings);
/// Whether another rail may serve where one had this failure: a failure of the path, not of a request.
bool concerns_rail(ibv_wc_status status);
/// `error`: the errno with which the TCP connection ended.
Status end_of_exchange(int error, const Settings& settings);

}  // namespace tutti::net_ib
