// SPDX-License-Identifier: Apache-2.0
// One call of one collective as data: its buffers, its arguments, and the seed of its inputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::check {

/// The same on every rank. With it any rank can make every rank's input, and so knows every rank's right output.
struct Problem {
  Collective collective = Collective::kAllReduce;  ///< kSendRecv: each rank sends to the next rank, in a ring
  bool uneven = false;                             ///< all_to_all only: all_to_all_v, see block_elements()
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int rank_count = 1;
  int root = 0;
  size_t count = 0;  ///< elements, as the call counts them
  uint64_t seed = 0;
};

/// Whether the collective combines contributions, depends on a root, has a block per rank in its larger buffer.
bool reduces(Collective collective);
bool has_root(Collective collective);
bool has_blocks(Collective collective);

/// Elements of a rank's buffers: 0 if the call neither reads nor writes the buffer.
size_t input_elements(const Problem& problem, int rank);
size_t output_elements(const Problem& problem, int rank);

/// The size of a call as nccl-tests counts it: the bytes of the larger buffer.
size_t bytes_of(const Problem& problem);

/// The one buffer of an in-place call, and where in it input and output begin, in elements.
struct InPlace {
  size_t elements;
  size_t input;
  size_t output;
};
/// Nothing where the collective cannot be in place.
std::optional<InPlace> in_place(const Problem& problem, int rank);

/// Elements that `from` sends to `to` in an all-to-all. Uneven: for every rank from none to twice `count`, `count` in
/// the mean (rounded down).
size_t block_elements(const Problem& problem, int from, int to);

/// A rank's factor in a pre-multiplied sum: a value that its type holds exactly.
double pre_mul_factor(DataType type, int rank);

/// One rank's call, ready to be made many times without allocating.
class Call {
 public:
  Call(const Problem& problem, int rank);
  /// Buffers that this rank neither reads nor writes are passed on as null.
  Status operator()(Communicator& communicator, const void* input, void* output, Stream stream = nullptr) const;

 private:
  struct Blocks {
    std::vector<size_t> counts;
    std::vector<size_t> offsets;
  };
  Status ring(Communicator& communicator, const void* input, void* output, Stream stream) const;

  Problem problem_;
  int rank_;
  Reduction reduction_;
  Blocks sent_;
  Blocks received_;
};

/// "all_reduce float32 sum, 4097 elements, 3 ranks".
std::string to_string(const Problem& problem);

}  // namespace tutti::check
