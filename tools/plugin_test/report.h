// SPDX-License-Identifier: Apache-2.0
// Reports of the kit: text, JSON and JUnit XML.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/plugin_test/runner.h"

namespace tutti::tools::plugin_test {

/// The plugin under test.
struct Subject {
  std::string file, name, version;
  std::string kind = "network";
  uint64_t seed = 0;
};

/// The table of all rules, as docs/plugin-guide.md holds it.
void print_rules();
/// The plugin and the seed, before the rules run.
void print_subject(const Subject& subject);
/// A line per rule, and a counter-example per failure.
void print_results(const std::vector<RuleResult>& results);
Status write_json(const std::string& path, const Subject& subject, const std::vector<RuleResult>& results);
Status write_junit(const std::string& path, const Subject& subject, const std::vector<RuleResult>& results);

}  // namespace tutti::tools::plugin_test
