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
    EXPECT_NE(table->find(TUTTI_ALL_REDUCE, 1 << 20, false), nullptr);
    ++tables;
  }
  EXPECT_GT(tables, 0);
}

TEST(TunedTables, have_entries_of_their_own_for_registered_outputs) {
  const std::string head =
      "tutti_table: 1\ntutti_version: x\ngpu: x\nranks: 2\nnodes: 1\ncollectives:\n  all_gather:\n";
  const auto entry = [](const char* bytes, const char* protocol, const char* more) {
    return std::string("    - {max_bytes: ") + bytes + ", algorithm: direct, protocol: " + protocol +
           ", channels: 1, measured_us: 1" + more + "}\n";
  };
  const std::string entries = entry("unlimited", "simple", "") + entry("64", "ll", ", registered: true") +
                              entry("128", "copy", ", registered: true");
  const auto table = tuner_table::read_table(head + entries, "table");
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  const auto protocol = [&](uint64_t bytes, bool registered) {
    return table->find(TUTTI_ALL_GATHER, bytes, registered)->protocol;
  };
  EXPECT_EQ(protocol(64, false), "simple");
  EXPECT_EQ(protocol(64, true), "ll");
  EXPECT_EQ(protocol(65, true), "copy");
  EXPECT_EQ(protocol(129, true), "simple");
  const auto wrong = [&](const std::string& more) {
    return std::string(tuner_table::read_table(head + entries + more, "table").status().text());
  };
  EXPECT_NE(wrong(entry("128", "copy", ", registered: true")).find("must grow"), std::string::npos);
  EXPECT_NE(wrong(entry("256", "copy", ", registered: yes")).find("neither true nor false"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
