// SPDX-License-Identifier: Apache-2.0
// The tables that ship can be read, and hold for this version.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tuner-table/table.h"

namespace tutti::test {
namespace {

TEST(TunedTables, AreReadAndOfThisVersion) {
  int tables = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TUTTI_SOURCE_DIR "/configs/tuned")) {
    if (entry.path().extension() != ".yaml") continue;
    SCOPED_TRACE(entry.path().string());
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const auto table = tuner_table::read_table(text.str(), entry.path().filename().string());
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    EXPECT_EQ(table->conditions.tutti_version, TUTTI_VERSION);
    EXPECT_NE(table->find(TUTTI_ALL_REDUCE, 1 << 20), nullptr);
    ++tables;
  }
  EXPECT_GT(tables, 0);
}

}  // namespace
}  // namespace tutti::test
