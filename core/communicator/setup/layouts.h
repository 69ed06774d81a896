// SPDX-License-Identifier: Apache-2.0
// The layouts of connections, as protocol plugins cut them. A protocol may decline a link.
#pragma once

#include <vector>

#include "transport/connection.h"
#include "tuner/selector.h"

namespace tutti::communicator {

/// Slots that the configuration asks for; 0: the protocol chooses.
struct SlotRequest {
  uint32_t link = 0;  ///< TUTTI_LINK_*
  uint32_t slot_count = 0;
  uint64_t slot_bytes = 0;
};

/// The layouts of all protocols over one link. If a plugin returns TUTTI_UNSUPPORTED, removes the link from the
/// properties of the protocol, and keeps the plugin's text in `declined`. Errors: the plugin's failure, kInternal for a
/// layout that breaks the contract.
Result<transport::KeySpace> lay_out(std::vector<tuner::Protocol>& protocols, const SlotRequest& request,
                                    uint32_t channels);

/// Asks the protocols that run on GPUs for the layout of a connection between GPUs. A protocol that declines it does
/// not run on GPUs any more.
Status ask_for_gpus(std::vector<tuner::Protocol>& protocols, const SlotRequest& request);

}  // namespace tutti::communicator
