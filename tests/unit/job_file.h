// SPDX-License-Identifier: Apache-2.0
// Configurations from the text of a job file.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/config.h"

namespace tutti::test {

/// The configuration of a job file with this text, without a site file. A wrong text fails the test.
inline config::Config load_job(const std::string& text) {
  const std::string file = fmt::format("{}tutti-job-{}.yaml", testing::TempDir(), getpid());
  std::ofstream(file) << text;
  auto config = config::Config::load({"", file, {}, {}});
  std::filesystem::remove(file);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return config.ok() ? *std::move(config) : *config::Config::load({"", "", {}, {}});
}

}  // namespace tutti::test
