// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plan file: it is read, or refused with a position. A file that was read is equal after a round trip
// through both forms, and is proved or refused with a reason.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "program/file/file.h"
#include "program/verify/prove.h"

namespace program = tutti::program;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = program::parse_file({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!read.ok()) {
    if (!read.status().text().starts_with("fuzz")) std::abort();  // no place
    return 0;
  }
  const auto from_yaml = program::parse_file(program::to_yaml(*read), "yaml");
  if (!from_yaml.ok() || !(*from_yaml == *read)) std::abort();
  const auto from_json = program::parse_file(program::to_json(*read), "json");
  if (!from_json.ok() || !(*from_json == *read)) std::abort();
  const program::ProofLimits limits = {1u << 16, 1u << 20, 1u << 20};
  const auto count = static_cast<uint32_t>(read->plans.size());
  const auto verdict = program::prove(count, program::source_of(read->plans), {}, limits);
  if (!verdict.status.ok() && verdict.status.text().empty()) std::abort();
  // What the proof by rotation says of few ranks, the exact proof says, too.
  const auto rotated = program::prove(count, program::source_of(read->plans), {}, {0, 0, 1u << 16});
  if (verdict.decided && rotated.decided && verdict.status.ok() != rotated.status.ok()) std::abort();
  return 0;
}
