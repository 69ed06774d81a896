// SPDX-License-Identifier: Apache-2.0
#include "nccl/variables.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

namespace tutti::nccl {
namespace {

constexpr std::string_view kPrefix = "NCCL_";
constexpr const char* kSystemFile = "/etc/nccl.conf";

using Values = std::map<std::string, std::string, std::less<>>;

/// Lines have the form NAME=value, without quotes; a line that begins with # is a comment. Existing values stay.
void add_file(const std::string& path, Values& values) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (line.starts_with(kPrefix) && equals != std::string::npos) {
      values.try_emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
}

/// Read once, so that later changes of the files do not make communicators of one process differ.
const Values& of_files() {
  static const Values* const values = [] {
    auto* const all = new Values;  // never destroyed: threads may ask while the process ends
    const char* own = secure_getenv("NCCL_CONF_FILE");
    const char* home = secure_getenv("HOME");
    if (own != nullptr) add_file(own, *all);
    if (own == nullptr && home != nullptr) add_file(std::string(home) + "/.nccl.conf", *all);
    add_file(kSystemFile, *all);
    return all;
  }();
  return *values;
}

}  // namespace

std::optional<std::string> variable(std::string_view name) {
  std::string value;
  if (const char* own = secure_getenv(std::string(name).c_str()); own != nullptr) {
    value = own;
  } else if (const auto entry = of_files().find(name); entry != of_files().end()) {
    value = entry->second;
  }
  return value.empty() ? std::nullopt : std::optional(value);
}

std::vector<std::string> variables() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kPrefix)) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const auto& [name, value] : of_files()) names.push_back(name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace tutti::nccl
