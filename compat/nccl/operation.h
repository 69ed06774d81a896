// SPDX-License-Identifier: Apache-2.0
// The operations of an application, as they are kept until the end of their group.
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

/// Messages from a rank to itself come in pairs: ncclInvalidUsage if an operation of the group has no partner.
ncclResult_t check_own_messages(std::span<const Operation> operations);

}  // namespace tutti::nccl
