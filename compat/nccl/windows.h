// SPDX-License-Identifier: Apache-2.0
// Windows: buffers that all ranks of a communicator register together, so that large collectives store straight to
// them.
#pragma once

#include <vector>

#include "nccl/comm.h"

namespace tutti::nccl {

struct WindowRequest {
  ncclComm* comm;
  void* buffer;
  size_t size;
};

/// Registers all of them: those of one communicator in order, those of several at the same time, since ranks wait for
/// each other. What Tutti refuses on all ranks alike is left unregistered.
Status register_windows(const std::vector<WindowRequest>& requests);

/// One window of the communicator is not used any more. Which one is not known: when none is, all registrations end.
void end_window(ncclComm& comm);

}  // namespace tutti::nccl
