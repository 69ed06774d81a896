// SPDX-License-Identifier: Apache-2.0
// The protocols whose kernels the emulator runs, and runs of calls with them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "unit/kernel_machine.h"
#include "unit/program_calls.h"

namespace tutti::test {

struct Protocol {
  const char* name;
  Wire wire;
  tutti_slot_layout layout;
  uint32_t threads;
  bool stages;
  uint32_t hosts = 1;  ///< relays join them
};

inline void PrintTo(const Protocol& protocol, std::ostream* out) {
  *out << protocol.name;
}

/// With slots that are small, so that few bytes are many loops, and as they are.
const std::vector<Protocol>& all_protocols();
/// The name of a test of a protocol.
std::string protocol_name(const testing::TestParamInfo<Protocol>& instance);
/// Slots of all pairs of many ranks must fit the memory.
Protocol with_less_memory(Protocol protocol);

KernelMachine::Options options_of(const Protocol& protocol, uint32_t ranks, uint32_t ctas);

/// TUTTI_TEST_SEED repeats a run.
uint64_t test_seed();
/// Whether this build has a sanitizer, and TUTTI_TEST_ROUNDS does not ask for long tests.
bool is_slow();
/// Whether a test of all numbers of ranks takes a few of them. A CTA of slices has more threads than a CTA of lines,
/// and takes longer. A build with a sanitizer takes three times as long for all CTAs. TUTTI_TEST_ROUNDS: all numbers.
bool takes_few(const Protocol& protocol);
/// How often a test runs. TUTTI_TEST_ROUNDS: so many times as often.
int rounds(const Protocol& protocol, int of_slices);
/// The numbers from `first` to `last`.
std::vector<uint32_t> all_of(uint32_t first, uint32_t last);

/// A number with any remainder; or a number shortly before numbers wrap around, or before old flags are rewritten.
template <class Below>
uint32_t any_number(Below&& below) {
  const uint32_t ends[] = {16, 0, 1u << 30, 3u << 30};
  return ends[below(std::size(ends))] - static_cast<uint32_t>(below(16));
}

/// Runs calls in a row, and compares their results. "" if all are right.
std::string run(const Protocol& protocol, std::span<const TestCall> tests, uint32_t ctas, uint32_t first_number,
                uint64_t seed);

}  // namespace tutti::test
