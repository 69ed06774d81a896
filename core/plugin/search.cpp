// SPDX-License-Identifier: Apache-2.0
#include "plugin/search.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "config/suggest.h"

namespace tutti::plugin {
namespace {

namespace fs = std::filesystem;

void add(std::vector<fs::path>& path, const fs::path& directory) {
  if (directory.empty()) return;
  std::error_code error;
  fs::path plain = fs::absolute(directory, error).lexically_normal();
  if (!plain.has_filename() && plain.has_relative_path()) plain = plain.parent_path();  // "/a/" is "/a"
  if (!error && std::find(path.begin(), path.end(), plain) == path.end()) path.push_back(plain);
}

/// Whether the file exists, if only as a link that leads nowhere: such a link is a broken plugin, not a missing plugin.
bool is_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(fs::symlink_status(file, error));
}

/// The directory of the library or program that holds this code.
fs::path own_directory() {
  static const int kHere = 0;
  Dl_info info{};
  if (dladdr(&kHere, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  // A program found through PATH has a name without a directory, which may also be a folder of the working directory.
  const fs::path name = info.dli_fname;
  fs::path image = name.has_parent_path() ? fs::canonical(name, error) : fs::path();
  if (image.empty()) image = fs::canonical("/proc/self/exe", error);
  return error ? fs::path() : image.parent_path();
}

}  // namespace

Reference reference_of(Kind kind, const std::string& named) {
  const size_t colon = named.find(':');
  const std::string name = named.substr(0, colon);
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_';
  });
  const bool may_have_file = kind == Kind::kNetwork || kind == Kind::kTuner;
  if (!may_have_file || colon == std::string::npos || !is_name) return {named, {}};
  return {name, named.substr(colon + 1)};
}

std::vector<fs::path> search_path(const std::vector<std::string>& configured) {
  std::vector<fs::path> path;
  for (const std::string& directory : configured) add(path, directory);
  if (const char* variable = secure_getenv("TUTTI_PLUGIN_PATH"); variable != nullptr) {
    const std::string text = variable;
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find(':', begin), text.size());
      add(path, text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (const fs::path own = own_directory(); !own.empty()) {
    add(path, own / "tutti" / "plugins");
    add(path, own.parent_path() / "lib" / "tutti" / "plugins");
  }
  add(path, TUTTI_INSTALL_PLUGIN_DIR);
  return path;
}

std::string misnamed_file(Kind kind, const std::string& name, const std::vector<fs::path>& directories) {
  if (name.empty()) return {};
  for (const fs::path& directory : directories) {
    std::error_code error;
    for (fs::directory_iterator file(directory, error), end; !error && file != end; file.increment(error)) {
      const fs::path& path = file->path();
      const bool is_plugin = path.filename() == file_name(kind, name_of(kind, path.string()));
      if (path.extension() == ".so" && !is_plugin && path.stem().string().find(name) != std::string::npos)
        return fmt::format("; {} has a different name", path.string());
    }
  }
  return {};
}

Result<fs::path> find(Kind kind, const std::string& named, const std::vector<fs::path>& directories) {
  const std::string name = reference_of(kind, named).plugin;
  if (fs::path(name).is_absolute()) {
    if (is_there(name)) return fs::path(name);
    return Status(Code::kNotFound, fmt::format("TUTTI-P01 {} plugin {} does not exist; correct the path in plugins.{}",
                                               to_string(kind), name, to_string(kind)));
  }
  const std::string file = file_name(kind, name);
  for (const fs::path& directory : directories) {
    if (is_there(directory / file)) return directory / file;
  }
  const std::vector<std::string> known = names_on(directories, kind);
  std::vector<std::string> searched;
  searched.reserve(directories.size());
  for (const fs::path& directory : directories) searched.push_back(directory.string());
  return Status(Code::kNotFound, fmt::format("TUTTI-P01 {} plugin '{}' not found: no {} in {}{}{}; there are: {}",
                                             to_string(kind), name, file, fmt::join(searched, ", "),
                                             misnamed_file(kind, name, directories), config::did_you_mean(name, known),
                                             known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

std::string name_of(Kind kind, const std::string& named) {
  const fs::path path = reference_of(kind, named).plugin;
  if (!path.is_absolute()) return path.string();
  const std::string prefix = fs::path(file_name(kind, "")).stem().string();  // "tutti-net-"
  const std::string stem = path.stem().string();
  return stem.starts_with(prefix) ? stem.substr(prefix.size()) : stem;
}

std::string label_of(Kind kind, const std::string& named) {
  return reference_of(kind, named).file.empty() ? name_of(kind, named) : named;
}

std::vector<std::string> names_on(const std::vector<fs::path>& directories, Kind kind) {
  std::vector<std::string> names;
  for (const fs::path& file : all_files(directories)) {
    std::string name = name_of(kind, file.string());
    if (file.filename() == file_name(kind, name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::vector<fs::path> all_files(const std::vector<fs::path>& directories) {
  std::vector<fs::path> files;
  for (const fs::path& directory : directories) {
    std::vector<fs::path> here;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("tutti-") && name.ends_with(".so")) here.push_back(entry.path());
    }
    std::sort(here.begin(), here.end());
    files.insert(files.end(), here.begin(), here.end());
  }
  return files;
}

}  // namespace tutti::plugin
