// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/child_trial.h"

#include <poll.h>

#include "tools/plugin_test/calls.h"

namespace tutti::tools::plugin_test {

Result<RuleResult> ChildTrial::run() {
  const int64_t begin = now_ns();
  const auto seconds = [&] { return static_cast<double>(now_ns() - begin) * 1e-9; };
  TUTTI_TRY(start());
  std::optional<RuleResult> outcome;
  while (!outcome) {
    pollfd ready{results_.get(), POLLIN, 0};
    poll(&ready, 1, 5);
    read_results();
    if (has_ended()) {
      read_results();
      outcome = verdict();
    } else {
      outcome = hangs(seconds());
    }
  }
  outcome->seconds = seconds();
  return *outcome;
}

}  // namespace tutti::tools::plugin_test
