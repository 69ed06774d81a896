// SPDX-License-Identifier: Apache-2.0
// The records of one rank's calls, which the communicator and its back end share.
#pragma once

#include <span>

#include "backend/attendance.h"
#include "backend/call.h"
#include "backend/history.h"
#include "backend/waiting.h"

namespace tutti::backend {

/// Counting and recording by the thread that makes calls. The members state which threads may read them.
struct Ledger {
  Ledger(int own_rank, int size)
      : rank(own_rank),
        attendance(static_cast<uint32_t>(size)),
        history(static_cast<uint32_t>(own_rank), static_cast<uint32_t>(size)) {}

  /// Counts calls, of a rank that is about to make them. Messages to the rank itself do not count.
  void count(std::span<const Call> calls);
  /// Adds counted calls to the history, and enters the phase kIn. For messages, the first call gives the kind.
  void record(std::span<const Call> calls);
  /// Removes calls that were recorded: they were refused on this rank alone, or on all ranks.
  void take_back(std::span<const Call> calls);

  const int rank;
  Attendance attendance;
  History history;
  Waiting waiting;
};

}  // namespace tutti::backend
