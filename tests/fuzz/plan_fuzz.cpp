// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plan file: it is read, or refused with a position. A file that was read is equal after a round trip
// through both forms, and is proved or refused with a reason.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "program/file/file.h"
#include "program/verify/verify.h"

namespace program = tutti::plan;

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
  const auto proved = program::verify(read->plans);
  if (!proved.ok() && proved.text().empty()) std::abort();
  return 0;
}
