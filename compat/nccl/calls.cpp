// SPDX-License-Identifier: Apache-2.0
// Collectives and messages: arguments checked, then handed to the group.
#include <cstdint>
#include <limits>
#include <string_view>

#include "nccl/api.h"
#include "nccl/comm.h"
#include "nccl/errors.h"
#include "nccl/group.h"

namespace tutti::nccl {
namespace {

/// A call as the application made it.
struct Asked {
  Collective collective;
  const void* input;
  void* output;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int root = 0;
  bool receives = false;
};

ncclResult_t check_buffers(const Asked& asked, const ncclComm& comm, size_t element) {
  const std::string_view name = to_string(asked.collective);
  // A negative count became a huge size_t: no buffer has half of all addresses.
  const auto largest = static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max());
  if (asked.count > largest / element / static_cast<size_t>(comm.size)) {
    return fail(ncclInvalidArgument, "{}: a count of {} is larger than any buffer; was it negative?", name,
                asked.count);
  }
  const bool at_root = comm.rank == asked.root;
  const bool from_root = asked.collective == Collective::kBroadcast || asked.collective == Collective::kScatter;
  const bool to_root = asked.collective == Collective::kReduce || asked.collective == Collective::kGather;
  const bool message = asked.collective == Collective::kSendRecv;
  const bool reads = message ? !asked.receives : at_root || !from_root;
  const bool writes = message ? asked.receives : at_root || !to_root;
  if (asked.count == 0 || ((asked.input != nullptr || !reads) && (asked.output != nullptr || !writes)))
    return ncclSuccess;
  return fail(ncclInvalidArgument, "{}: a buffer that this rank needs is null", name);
}

ncclResult_t make(const Asked& asked, ncclComm* comm, cudaStream_t stream) {
  const std::string_view name = to_string(asked.collective);
  TUTTI_NCCL_TRY(check_usable(comm, name));
  if (asked.root < 0 || asked.root >= comm->size) {
    return fail(ncclInvalidArgument, "{}: {} is no rank of {}", name, asked.root, comm->size);
  }
  const auto type = type_of(asked.type);
  if (!type) return fail(ncclInvalidArgument, "{}: {} is no data type", name, static_cast<int>(asked.type));
  const auto reduction = comm->reductions.find(asked.op, *type);
  if (!reduction) {
    return fail(ncclInvalidArgument, "{}: {} is no reduction of this communicator for {}", name,
                static_cast<int>(asked.op), to_string(*type));
  }
  TUTTI_NCCL_TRY(check_buffers(asked, *comm, size_of(*type)));
  return submit({comm, asked.collective, asked.input, asked.output, asked.count, *type, *reduction, asked.root,
                 asked.receives, stream});
}

ncclResult_t ask(const Asked& asked, ncclComm* comm, cudaStream_t stream) {
  return remember(make(asked, comm, stream));
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;
using tutti::Collective;

TUTTI_NCCL(ncclResult_t, ncclAllReduce,
           (const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
            cudaStream_t stream)) {
  return ask({Collective::kAllReduce, input, output, count, type, op}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclReduceScatter,
           (const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
            cudaStream_t stream)) {
  return ask({Collective::kReduceScatter, input, output, count, type, op}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclAllGather,
           (const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) {
  return ask({Collective::kAllGather, input, output, count, type}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclBroadcast,
           (const void* input, void* output, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream)) {
  return ask({Collective::kBroadcast, input, output, count, type, ncclSum, root}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclBcast,
           (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) {
  return ask({Collective::kBroadcast, buffer, buffer, count, type, ncclSum, root}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclReduce,
           (const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
            ncclComm_t comm, cudaStream_t stream)) {
  return ask({Collective::kReduce, input, output, count, type, op, root}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclAlltoAll,
           (const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) {
  return ask({Collective::kAllToAll, input, output, count, type}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclGather,
           (const void* input, void* output, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream)) {
  return ask({Collective::kGather, input, output, count, type, ncclSum, root}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclScatter,
           (const void* input, void* output, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
            cudaStream_t stream)) {
  return ask({Collective::kScatter, input, output, count, type, ncclSum, root}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclSend,
           (const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return ask({Collective::kSendRecv, input, nullptr, count, type, ncclSum, peer, false}, comm, stream);
}

TUTTI_NCCL(ncclResult_t, ncclRecv,
           (void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
  return ask({Collective::kSendRecv, nullptr, output, count, type, ncclSum, peer, true}, comm, stream);
}
