// SPDX-License-Identifier: Apache-2.0
#include "launcher/pmix.h"

namespace tutti::launcher {

Result<UniqueId> meet_by_pmix(const RankAssignment& assignment, std::string_view, base::Milliseconds) {
  return Status(Code::kUnsupported,
                assignment.launcher +
                    " carries the id of a job by PMIx, which this build lacks; build with the "
                    "headers of PMIx (Debian: libpmix-dev), or set TUTTI_MEETING=HOST_OF_RANK_0:PORT");
}

}  // namespace tutti::launcher
