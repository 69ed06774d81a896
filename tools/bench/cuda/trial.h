// SPDX-License-Identifier: Apache-2.0
// One rank's side of checking a call on device memory: inputs made on the host, outputs compared there.
#pragma once

#include <vector>

#include "tools/bench/batches.h"
#include "tools/bench/cuda/device.h"

namespace tutti::bench::cuda {

/// The random input of one problem, and its right output. In buffers above kWhollyChecked, only windows have the random
/// values of the check, and only their results are compared; the rest repeats a random pattern.
class Trial {
 public:
  /// `checked_bytes`: of the larger buffer, about as much as find() looks at; 0: it will not be called.
  Trial(const check::Problem& problem, int rank, size_t checked_bytes);

  /// Puts the whole input there.
  Status load(std::byte* input, cudaStream_t queue) const;
  /// Compares the output. The calls that write it must have ended.
  Result<Finding> find(const std::byte* output, cudaStream_t queue) const;

 private:
  struct Piece {
    check::Range range;
    std::vector<std::byte> bytes;
  };
  Piece make_piece(const check::Range& range) const;
  Status copy_in(const Piece& piece, std::byte* input, cudaStream_t queue) const;

  check::Problem problem_;
  int rank_;
  size_t element_bytes_;
  size_t elements_;  ///< elements of the input
  Piece pattern_;
  std::vector<Piece> windows_;
  std::vector<check::Part> parts_;
  /// One reference per part; empty references if the collective does not reduce.
  std::vector<check::Reference> references_;
};

}  // namespace tutti::bench::cuda
