// SPDX-License-Identifier: Apache-2.0
// Groups: the calls of a thread between GroupStart and GroupEnd are kept, and the outermost end runs them together. A
// mistake in a group is remembered, and then no call of the group runs.
#pragma once

#include <functional>

#include "nccl/operation.h"
#include "nccl/windows.h"

namespace tutti::nccl {

/// The init of a communicator.
struct PendingInit {
  ncclComm* comm;    ///< to be made
  ncclComm* parent;  ///< children of one parent are made in turn; may be null
  /// Handle of the application: null again if a blocking init fails. None: the result is not wanted.
  ncclComm** handle;
  std::function<Status()> make;  ///< fills comm; on a thread whose GPU is comm's
};

/// Does it now, or in the outermost GroupEnd of this thread.
ncclResult_t submit(const Operation& operation);
/// As that; not blocking: in a thread, and ncclInProgress is returned.
ncclResult_t submit(PendingInit init);
ncclResult_t submit(const WindowRequest& request);
/// All calls that may be made in a group return their result through this function.
ncclResult_t remember(ncclResult_t result);

ncclResult_t start_group();
ncclResult_t end_group();

}  // namespace tutti::nccl
