// SPDX-License-Identifier: Apache-2.0
// How waits of a rank on the host use the processors.
#pragma once

#include <cstdint>

#include "backend/host/driver.h"
#include "bootstrap/host.h"
#include "config/config.h"

namespace tutti::communicator {

/// The ranks on the processors of this machine, also of pretended hosts.
struct Crowd {
  uint32_t ranks = 1;
  uint32_t own = 0;           ///< the number of this rank among them
  uint32_t processors = 1;    ///< one or more of these ranks may use them
  bool uses_network = false;  ///< this rank exchanges data with other hosts
};

/// The ranks on the machine of rank `own`.
Crowd crowd_of(const bootstrap::Hosts& hosts, uint32_t own);

/// The waits of a rank. Ranks that have a processor each spin for a few µs. Ranks that share processors make room at
/// once, since the awaited rank may need the processor.
backend::Driver::Options waits_of(const config::Config& config, const Crowd& crowd);

}  // namespace tutti::communicator
