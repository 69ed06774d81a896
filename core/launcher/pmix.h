// SPDX-License-Identifier: Apache-2.0
// The exchange of an id over PMIx (PMIx Standard 4.1, 2021), the interface between launchers and processes.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "launcher/rank_assignment.h"
#include "tutti/status.h"
#include "tutti/unique_id.h"

namespace tutti::launcher {

/// Rank 0 makes an id and gives it to the launcher; the other ranks ask the launcher for it. Opens libpmix.so.2 at the
/// first call. The limit is timeouts.bootstrap. Errors: kUnsupported (a build without PMIx), kNotFound (no
/// libpmix.so.2), kTimeout, kSystem (text of PMIx). Threads: one at a time.
Result<UniqueId> meet_by_pmix(const RankAssignment& assignment, std::string_view interfaces, base::Milliseconds limit);

}  // namespace tutti::launcher
