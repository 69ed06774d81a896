// SPDX-License-Identifier: Apache-2.0
// The failures of calls on the host, in words.
#pragma once

#include <chrono>

#include "backend/host/driver.h"
#include "backend/host/fabric.h"
#include "backend/owner.h"

namespace tutti::backend {

/// The thread that makes calls.
class Verdicts {
 public:
  /// `limit`: how long a call may make no progress. `fabric` outlives this object.
  Verdicts(Owner& owner, int rank, std::chrono::nanoseconds limit, const Fabric& fabric)
      : owner_(owner), rank_(rank), limit_(limit), fabric_(fabric) {}

  /// Breaks the communicator, unless it has failed already. Returns the failure that holds.
  Status explain(const Driver::Outcome& outcome, const Call& call) const;

 private:
  Status explain_failure(const Driver::Outcome& outcome, const Call& call) const;
  Status explain_remote(uint32_t peer, const Call& call) const;
  Status explain_mismatch(const Driver::Outcome& outcome, const Call& call) const;
  Status explain_timeout(const Driver::Outcome& outcome, const Call& call) const;

  Owner& owner_;
  const int rank_;
  const std::chrono::nanoseconds limit_;
  const Fabric& fabric_;
};

}  // namespace tutti::backend
