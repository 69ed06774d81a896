// SPDX-License-Identifier: Apache-2.0
// Any bytes as a topology: it is read, or refused with a position. A topology that was read is equal after a round trip
// through both forms, merges with itself, and makes a system graph or gives the reason why not.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/system.h"

namespace topology = tutti::topology;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const bool xml = text.starts_with('<');
  const auto read = xml ? topology::Document::read_xml(text, "fuzz") : topology::Document::read_yaml(text, "fuzz");
  if (!read.ok()) {
    if (!read.status().text().starts_with("fuzz")) std::abort();  // no place
    return 0;
  }
  const auto from_yaml = topology::Document::read_yaml(topology::write_yaml(*read), "yaml");
  if (!from_yaml.ok() || !(*from_yaml == *read)) std::abort();
  const auto from_xml = topology::Document::read_xml(topology::write_xml(*read), "xml");
  if (!from_xml.ok() || !(*from_xml == *read)) std::abort();
  const auto merged = topology::merge(*read, *read);
  if (!merged.ok()) std::abort();
  topology::BuildOptions options;
  const auto system = topology::System::build(*merged, options);
  if (!system.ok() && system.status().text().empty()) std::abort();
  return 0;
}
