// SPDX-License-Identifier: Apache-2.0
// The programs of a launch of the large form, encoded as one block of memory of the GPU (tutti_cuda_large_program). No
// function calls CUDA: the owner of the memory copies the block to the GPU.
//
// Threads: any. The class changes nothing after its creation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "program/connection_numbers.h"
#include "program/program.h"
#include "tutti/plugin/cuda.h"

namespace tutti::backend {

class LargePrograms {
 public:
  /// The programs of one rank, by channel, within the limits of kernels (program::lower).
  LargePrograms(std::span<const program::Program> programs, uint32_t rank, uint32_t rank_count);

  /// The size of the block.
  size_t bytes() const { return bytes_; }

  /// The block for memory that a GPU sees at address `at`, a multiple of 8. It begins with a tutti_cuda_large_program
  /// for each program. `links`: by rank. `row`: the address of links by rank in memory of the GPU, used if the numbers
  /// of connections are ranks; else the block has the links of each program.
  std::vector<std::byte> encode(const void* at, std::span<const tutti_cuda_link> links,
                                const tutti_cuda_link* row) const;

 private:
  /// The offsets of a program's arrays in the block.
  struct Offsets {
    size_t steps = 0;
    size_t peers = 0;
    size_t links = 0;
    size_t ranks = 0;
  };

  std::span<const program::Program> programs_;
  uint32_t rank_;
  std::vector<program::ConnectionNumbers> connections_;  // by program
  std::vector<Offsets> offsets_;                         // by program
  size_t bytes_ = 0;
};

}  // namespace tutti::backend
