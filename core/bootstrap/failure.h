// SPDX-License-Identifier: Apache-2.0
// The failures that end a group of ranks early.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/status.h"

namespace tutti::bootstrap {

enum class FailureKind : uint16_t {
  kPeerLost = 1,  ///< a rank's process or host died
  kAborted,       ///< a rank called post_abort()
  kHubLost,       ///< the last hub is lost, and no rank lived in its process
};

/// The first failure of a group; the same on all ranks, unless several happen at once.
struct FailureReport {
  FailureKind kind;
  int rank = -1;     ///< lost or aborted rank; -1 for the hub
  std::string text;  ///< "rank 3 (node7 pid 42) is lost: its process ended without leaving", or the text of the abort

  Status status() const { return {kind == FailureKind::kAborted ? Code::kAborted : Code::kRemote, text}; }
};

}  // namespace tutti::bootstrap
