// SPDX-License-Identifier: Apache-2.0
// Calls of lowered plans, with their memory and the right results, for every class that runs programs. Elements are
// bytes, combined by their sum modulo 256.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/lower_strands.h"
#include "program/plan.h"
#include "program/program.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"
#include "tutti/types.h"

namespace tutti::test {

/// One collective call on all ranks.
struct ProgramCall {
  Collective collective = Collective::kAllReduce;
  std::vector<program::Program> programs;  ///< by rank
  std::vector<program::Strands> strands;   ///< by rank; with a strand_count of 0 if the rank's plan has no strands
  tutti_slot_layout layout{};              ///< that the call is cut for
  tutti_cuda_cut cut;
  uint64_t block_bytes;
  std::vector<std::span<uint8_t>> inputs;  ///< by rank: all blocks
  std::vector<std::span<uint8_t>> outputs;
  bool registered = false;  ///< programs may say that messages go straight to outputs of peers
};

tutti_slot_layout layout_of(uint32_t slots, uint64_t slot_bytes, uint32_t chunk_slots, uint32_t overlaps = 0);

/// One call on all ranks. `plans` must outlive it.
class TestCall {
 public:
  TestCall(const std::vector<program::Plan>& plans, bool in_place, uint64_t bytes, uint32_t ctas,
           const tutti_slot_layout& layout, bool registered = false);

  /// Whether kernels can run the plans at all.
  bool fits() const { return !call_.programs.empty(); }
  const ProgramCall& call() const { return call_; }
  /// "" if all memory has the right content.
  std::string check() const;

 private:
  size_t shift(const program::Plan& plan) const;
  void add_memory(const program::Plan& plan, bool in_place);
  void point_to_memory(const program::Plan& plan, bool in_place);
  uint8_t result(const program::Plan& plan, size_t at) const;
  uint8_t sum(size_t at) const;

  const std::vector<program::Plan>& plans_;
  uint64_t bytes_;
  ProgramCall call_{};
  std::vector<std::vector<uint8_t>> inputs_;
  std::vector<std::vector<uint8_t>> before_;
  std::vector<std::vector<uint8_t>> memory_;
};

/// Plans of three ranks whose connections carry three, two and one messages per loop.
std::vector<program::Plan> uneven_connections();
/// Plans of three ranks. Rank 1 gets chunks 2 and 3 from rank 0 only after chunk 1 has come round by rank 2. They come
/// one wave later than chunk 0, which uses the same connection.
std::vector<program::Plan> uneven_waits();

}  // namespace tutti::test
