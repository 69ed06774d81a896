// SPDX-License-Identifier: Apache-2.0
// Runs rules in processes of their own, and watches them: a plugin may hang or crash.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/plugin_test/request.h"
#include "tools/plugin_test/rule.h"

namespace tutti::tools::plugin_test {

enum class Verdict { kPassed, kFailed, kSkipped };
std::string_view to_string(Verdict verdict);

struct RuleResult {
  const Rule* rule = nullptr;
  Where where = Where::kOneProcess;
  Verdict verdict = Verdict::kPassed;
  const Rule* violated = nullptr;  ///< broken rule, maybe not the rule that ran; null: no failure
  std::string text;                ///< the counter-example, or the reason for a skip
  double seconds = 0;
  bool before_the_rule = false;  ///< failed in create, properties or listen, which every rule needs
};

/// Called before each rule with the rule's place in all that will run.
using Progress = std::function<void(size_t index, size_t count, const Rule& rule, Where where)>;

/// Runs all rules that `request` selects. kSystem: a process cannot be started.
Result<std::vector<RuleResult>> run_rules(const Request& request, const Progress& progress);

}  // namespace tutti::tools::plugin_test
