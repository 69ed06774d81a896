// SPDX-License-Identifier: Apache-2.0
// The files on the search path, for `tutti plugin list`. It reads only notes, unless `open` is requested.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "plugin/note.h"

namespace tutti::plugin {

struct Listed {
  std::filesystem::path file;  ///< or NAME:FILE, as the configuration has it
  std::optional<Note> note;
  std::string refused;      ///< why it cannot be used; empty if it can, as far as was looked
  bool absent = false;      ///< refused by itself with kNotFound: this machine lacks its device
  std::string description;  ///< only if opened
  uint64_t capabilities = 0;
  std::vector<config::Key> settings;
};

/// The files in the order of the path. With `open`, the networks that the configuration names as NAME:FILE follow.
std::vector<Listed> list(const config::Config& config, bool open);

}  // namespace tutti::plugin
