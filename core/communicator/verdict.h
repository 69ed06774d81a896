// SPDX-License-Identifier: Apache-2.0
// Texts about calls that differ between ranks, and about ranks that wait: made from the known states of all ranks.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "communicator/survey.h"

namespace tutti::communicator {

/// By rank.
using Reports = std::span<const Report>;

/// "ranks made different calls: call 17 is broadcast of 10 × float32, root 0 on ranks 0,2-3 and broadcast of 10 ×
/// float32, root 2 on rank 1; ...", of the first call of which the reports have different digests; nothing: they have
/// none.
std::optional<std::string> different_calls(Reports reports);
/// The same for the messages between two ranks in one direction.
std::optional<std::string> different_messages(Reports reports, uint32_t sender, uint32_t receiver);
/// "ranks made different numbers of calls: 16 on rank 2 and 17 on ranks 0-1,3; ..."; nothing: the reports show no
/// difference.
std::optional<std::string> different_counts(Reports reports);

/// "is in call 17, all_reduce of 8 × float32, sum". `awaited`: the call in which other ranks wait; 0: none.
std::string state_of(const Report& report, uint64_t awaited = 0);
/// The states of all ranks: "; rank 0 is in call 17, ...; rank 1 ...". If there are many ranks, ranks with equal states
/// are named together: "; ranks 0-62: is in call 17, ...; rank 63: ...".
std::string states_of(Reports reports, uint64_t awaited);

/// "no progress for 10 s: ranks 0-1,3 wait in call 17 (all_reduce of 8 × float32, sum) since 12:34:56 ..., for rank 2;
/// rank 2 has done call 16, ..., and is in application code". `own`: the rank that writes it, which waits.
std::string describe_wait(Reports reports, uint32_t own);

}  // namespace tutti::communicator
