// SPDX-License-Identifier: Apache-2.0
// Groups: what a thread asks between GroupStart and GroupEnd is kept, and done together by the outermost end. A mistake
// in a group is remembered, and nothing of the group is done then.
#pragma once

#include <functional>

#include "nccl/operation.h"
#include "nccl/windows.h"

namespace tutti::nccl {

/// The making of a communicator.
struct Making {
  ncclComm* comm;     ///< to be made
  ncclComm* parent;   ///< what one parent is split into is made one after another; may be null
  ncclComm** handle;  ///< of the application: null again if a blocking one fails. None: the result is not wanted
  std::function<Status()> make;  ///< fills comm; on a thread whose GPU is comm's
};

/// Does it now, or in the outermost GroupEnd of this thread.
ncclResult_t submit(const Operation& operation);
/// As that; not blocking: in a thread, and ncclInProgress is returned.
ncclResult_t submit(Making making);
ncclResult_t submit(const WindowRequest& request);
/// What every call returns its result through that may be made in a group.
ncclResult_t remember(ncclResult_t result);

ncclResult_t start_group();
ncclResult_t end_group();

}  // namespace tutti::nccl
