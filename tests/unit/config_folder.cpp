// SPDX-License-Identifier: Apache-2.0
#include "unit/config_folder.h"

#include <stdlib.h>

#include <fstream>

namespace tutti::config {

namespace fs = std::filesystem;

void ConfigFolder::SetUp() {
  std::string name = (fs::path(::testing::TempDir()) / "tutti-config-XXXXXX").string();
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  folder_ = name;
  before_ = fs::current_path();
  fs::current_path(folder_);
}

void ConfigFolder::TearDown() {
  fs::current_path(before_);
  fs::remove_all(folder_);
}

void ConfigFolder::write(const std::string& file, const std::string& text) {
  fs::remove(file);  // ext4 flushes a file that is truncated and written again: slow, thousands of times
  std::ofstream(file, std::ios::binary) << text;
}

Result<Config> ConfigFolder::load(const std::string& job, const Pairs& environment, const Pairs& settings) {
  write("job.yaml", job);
  return Config::load({"site.yaml", "job.yaml", environment, settings});
}

std::string ConfigFolder::error_of(const std::string& job, const Pairs& environment, const Pairs& settings) {
  const auto config = load(job, environment, settings);
  if (config.ok()) return "no error";
  EXPECT_EQ(config.status().code(), Code::kConfig) << config.status().to_string();
  return std::string(config.status().text());
}

}  // namespace tutti::config
