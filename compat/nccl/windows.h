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

/// Registers all windows. Windows of one communicator are registered in order, windows of several communicators at the
/// same time, since ranks wait for each other. Windows that Tutti refuses on all ranks are left unregistered.
Status register_windows(const std::vector<WindowRequest>& requests);

/// Counts one window of the communicator as unused. The window is not known: when all are unused, all registrations
/// end.
void end_window(ncclComm& comm);

}  // namespace tutti::nccl
