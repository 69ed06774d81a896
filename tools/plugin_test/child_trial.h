// SPDX-License-Identifier: Apache-2.0
// A trial of a rule in processes of their own, which report through a pipe.
#pragma once

#include <optional>

#include "base/fd.h"
#include "tools/plugin_test/runner.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {

/// One thread at a time.
class ChildTrial {
 public:
  virtual ~ChildTrial() = default;
  /// Starts the processes and waits for the end of the trial. Fails if a process cannot be started.
  Result<RuleResult> run();

 protected:
  /// Starts the processes, and sets results_.
  virtual Status start() = 0;
  /// Takes what has come through results_.
  virtual void read_results() = 0;
  /// Whether all processes have ended.
  virtual bool has_ended() = 0;
  /// The result after the end of the processes.
  virtual RuleResult verdict() const = 0;
  /// The result if the trial has taken too long, of which `seconds` have passed.
  virtual std::optional<RuleResult> hangs(double seconds) const = 0;

  base::Fd results_;
};

}  // namespace tutti::tools::plugin_test
