// SPDX-License-Identifier: Apache-2.0
// The configuration of a job, for a process that takes part in it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace tutti::config {

/// All layers: the site's file, `job_file`, the variables of this process, and `settings`. Texts name the origins of
/// `settings` and of `job_file`. Fails as Config::load().
inline Result<Config> load_job(const std::string& job_file,
                               const std::vector<std::pair<std::string, std::string>>& settings,
                               const std::string& settings_origin,
                               const std::string& job_file_origin = "Options::config_file") {
  LoadOptions options;
  options.job_file = job_file;
  options.job_file_origin = job_file_origin;
  options.environment = process_environment();
  options.settings = settings;
  options.settings_origin = settings_origin;
  return Config::load(options);
}

}  // namespace tutti::config
