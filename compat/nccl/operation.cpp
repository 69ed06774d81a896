// SPDX-License-Identifier: Apache-2.0
#include "nccl/operation.h"

#include <map>

#include "nccl/errors.h"

namespace tutti::nccl {

ncclResult_t check_own_messages(std::span<const Operation> operations) {
  std::map<const ncclComm*, int64_t> unmet;  // sends without a receive
  for (const Operation& o : operations) {
    if (o.collective == Collective::kSendRecv && o.root == o.comm->rank) unmet[o.comm] += o.receives ? -1 : 1;
  }
  for (const auto& [comm, sends] : unmet) {
    if (sends == 0) continue;
    return fail(ncclInvalidUsage, "rank {} {} itself without the partner of that in the same group", comm->rank,
                sends > 0 ? "sends to" : "receives from");
  }
  return ncclSuccess;
}

}  // namespace tutti::nccl
