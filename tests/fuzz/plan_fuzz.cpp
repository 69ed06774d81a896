// SPDX-License-Identifier: Apache-2.0
// Any bytes as a plan file: it is read, or refused with a position. A file that was read is equal after a round trip
// through both forms, and is proved or refused with a reason.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plan/file.h"
#include "plan/verify.h"

namespace plan = tutti::plan;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = plan::parse_file({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!read.ok()) {
    if (!read.status().text().starts_with("fuzz")) std::abort();  // no place
    return 0;
  }
  const auto from_yaml = plan::parse_file(plan::to_yaml(*read), "yaml");
  if (!from_yaml.ok() || !(*from_yaml == *read)) std::abort();
  const auto from_json = plan::parse_file(plan::to_json(*read), "json");
  if (!from_json.ok() || !(*from_json == *read)) std::abort();
  const auto proved = plan::verify(read->plans);
  if (!proved.ok() && proved.text().empty()) std::abort();
  return 0;
}
