// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <array>
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

/// The folders of shipped tables, relative to this plugin. In an installation, lib/tutti/plugins is beside share. In
/// the source tree, build/<preset>/lib/tutti/plugins is below configs' parent.
std::array<fs::path, 2> shipped_folders() {
  const fs::path own = own_folder();
  return {(own / "../../../share/tutti/tuned").lexically_normal(),
          (own / "../../../../../configs/tuned").lexically_normal()};
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

}  // namespace

Result<std::string> find_file(const std::string& name) {
  if (is_file(name)) return name;
  std::string looked = "the working directory";
  for (const fs::path& folder : shipped_folders()) {
    if (!fs::path(name).is_absolute() && is_file(folder / name)) return (folder / name).string();
    looked += ", " + folder.string();
  }
  if (fs::path(name).is_absolute()) looked = "that path only";
  return Status(Code::kNotFound, "settings.tuner.table.file: there is no file '" + name + "' (looked in " + looked +
                                     "); make one with 'tutti tune --out FILE', or set it to auto or \"\"");
}

std::vector<std::string> shipped_files() {
  std::vector<std::string> files;
  for (const fs::path& folder : shipped_folders()) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() == ".yaml" && is_file(entry->path())) files.push_back(entry->path().string());
    }
    if (!files.empty()) break;
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace tutti::tuner_table
