// SPDX-License-Identifier: Apache-2.0
// What an application asks of a communicator, as it is kept until the end of its group.
#pragma once

#include <span>

#include "nccl/comm.h"

namespace tutti::nccl {

/// A collective or a message, checked.
struct Operation {
  ncclComm* comm;
  Collective collective;
  const void* input;
  void* output;
  size_t count;
  DataType type;
  Factored reduction;
  int root = 0;  ///< or the peer
  bool receives = false;
  cudaStream_t stream = nullptr;
};

/// Messages of a rank to itself come in pairs: ncclInvalidUsage if these operations of a group lack a partner.
ncclResult_t check_own_messages(std::span<const Operation> operations);

}  // namespace tutti::nccl
