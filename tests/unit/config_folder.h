// SPDX-License-Identifier: Apache-2.0
// A folder of its own to load configurations in, so that places read "job.yaml:3:5".
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace tutti::config {

using Pairs = std::vector<std::pair<std::string, std::string>>;

class ConfigFolder : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  static void write(const std::string& file, const std::string& text);
  /// Loads `job` as job.yaml, over site.yaml if that was written.
  static Result<Config> load(const std::string& job, const Pairs& environment = {}, const Pairs& settings = {});
  /// The text of the error of load(), which must be kConfig.
  static std::string error_of(const std::string& job, const Pairs& environment = {}, const Pairs& settings = {});

  std::filesystem::path folder_;
  std::filesystem::path before_;
};

}  // namespace tutti::config
