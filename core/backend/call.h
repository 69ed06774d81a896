// SPDX-License-Identifier: Apache-2.0
// One call as the application made it, and the checks of its arguments.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tutti/status.h"
#include "tutti/types.h"

namespace tutti::backend {

struct Call {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;
  DataType type = DataType::kFloat32;
  Reduction reduction = ReduceOp::kSum;
  int root = 0;           ///< root of a rooted collective; peer of a send or receive
  bool receives = false;  ///< kSendRecv: receive rather than send
  Stream stream = nullptr;
  bool registered = false;  ///< outputs lie in registered buffers that all ranks reach

  /// Collective, type, operation and root in one word, which is the same on all ranks that make the same call. Messages
  /// have no root here.
  uint64_t kind() const;
  /// A call with the parts that the word `kind` holds.
  static Call of_kind(uint64_t kind, uint64_t count);
};

/// kInvalidArgument with the argument's name, its value and the permitted values; ok for calls that can be made on
/// `size` ranks.
Status check(const Call& call, int rank, int size);

/// Blocks of the output, if its length is equal on all ranks; 0: not every rank has an output.
size_t output_blocks_everywhere(Collective collective, int size);

/// Sends of a group to this rank itself, and its receives from itself. Both must be equal in number and length.
struct OwnMessages {
  std::vector<const Call*> sends;
  std::vector<const Call*> receives;
};
Result<OwnMessages> own_messages(std::span<const Call> calls, int rank);

/// Whether the call's buffers are the buffers of an in-place call.
bool in_place(const Call& call, int rank);

/// "all_reduce of 10 × float32, sum".
std::string describe(const Call& call);

}  // namespace tutti::backend
