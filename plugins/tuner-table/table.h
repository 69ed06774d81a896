// SPDX-License-Identifier: Apache-2.0
// A measured table: the fastest choices, by collective and size, and the conditions of the measurement. README.md has
// the format.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/plugin/tuner.h"
#include "tutti/status.h"

namespace tutti::tuner_table {

/// The fastest choice for calls of up to `max_bytes` in the larger buffer.
struct Entry {
  uint64_t max_bytes = UINT64_MAX;
  std::string algorithm;
  std::string variant;  ///< empty: the algorithm's only one
  std::string protocol;
  uint32_t channels = 1;
  double measured_us = 0;
  bool registered = false;  ///< only for calls with registered outputs; for these, it precedes all other entries
};

/// The conditions of the measurement; a table holds under equal conditions only.
struct Conditions {
  std::string tutti_version;
  std::string gpu;  ///< empty: the ranks compute on the host
  uint32_t ranks = 0;
  uint32_t nodes = 0;
};

struct Table {
  Conditions conditions;
  /// By collective. The sizes of entries for registered outputs ascend, and so do the sizes of the remaining entries.
  std::array<std::vector<Entry>, TUTTI_COLLECTIVE_COUNT> entries;

  /// The entry that decides on a call; null: none does. `registered`: with registered outputs.
  const Entry* find(uint32_t collective, uint64_t bytes, bool registered) const;
  uint32_t most_channels() const;
  bool is_empty() const;  ///< whether it has no entry
};

/// The conditions that the ranks of a communicator have.
Conditions conditions_of(const tutti_topology& topology);
/// "GPU 'NVIDIA H100' there, 'NVIDIA H200' here; ranks 8 there, 4 here"; empty: the table holds here.
std::string difference(const Conditions& measured, const Conditions& here);

/// kConfig with file, line and key if the text is no valid table. `name` stands for the file.
Result<Table> read_table(const std::string& text, const std::string& name);

/// The path of the file that the setting names: as it stands, or a name in share/tutti/tuned of the installation (in
/// Tutti's source tree configs/tuned). kNotFound says where it was looked for.
Result<std::string> find_file(const std::string& name);
/// The paths of all tables there, in the order of their names.
std::vector<std::string> shipped_files();

}  // namespace tutti::tuner_table
