// SPDX-License-Identifier: Apache-2.0
// Calls of lowered plans, with their memory and the right results, for every class that runs programs. Elements are
// bytes, combined by their sum modulo 256.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/plan.h"
#include "unit/program_machine.h"

namespace tutti::test {

/// How a protocol lays its connections out.
struct Layout {
  const char* name;
  bool slices;
  tutti_slot_layout layout;
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

}  // namespace tutti::test
