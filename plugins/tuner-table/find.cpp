// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "table.h"

namespace tutti::tuner_table {
namespace {

namespace fs = std::filesystem;

/// The folder of this plugin's file; empty: unknown.
fs::path own_folder() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &own) == 0 || own.dli_fname == nullptr) return {};
  std::error_code error;
  return fs::weakly_canonical(own.dli_fname, error).parent_path();
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

Result<std::string> find_file(const std::string& name) {
  if (is_file(name)) return name;
  std::string looked = "the working directory";
  // lib/tutti/plugins is beside share; in the source tree, build/<preset>/lib/tutti/plugins is below configs' parent.
  for (const char* tuned : {"../../../share/tutti/tuned", "../../../../../configs/tuned"}) {
    const fs::path folder = (own_folder() / tuned).lexically_normal();
    if (!fs::path(name).is_absolute() && is_file(folder / name)) return (folder / name).string();
    looked += ", " + folder.string();
  }
  if (fs::path(name).is_absolute()) looked = "that path only";
  return Status(Code::kNotFound, "settings.tuner.table.file: there is no file '" + name + "' (looked in " + looked +
                                     "); make one with 'tutti tune --out FILE', or leave the setting empty");
}

}  // namespace tutti::tuner_table
