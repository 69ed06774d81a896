// SPDX-License-Identifier: Apache-2.0
// Plan files by name: a value of `algorithm`, here and in rules, names an algorithm plugin or plan files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace tutti::config {

/// Whether a value of `algorithm` names plan files: one file ("plans/mine.yaml"; also .yml and .json), or a folder
/// ("plans/"). A folder ends with a slash.
bool names_plan_files(std::string_view value);

/// Whether `value` names the plan file `file`: the value is this file, or the folder that holds it.
bool names_plan_file(std::string_view value, std::string_view file);

/// A file or folder of plans that a configuration names.
struct PlanPath {
  std::string path;
  std::string place;  ///< "job.yaml:3:12"
};

/// The files and folders that `algorithm` and the rules of a configuration name, each once.
std::vector<PlanPath> plan_paths(const Config& config);

}  // namespace tutti::config
