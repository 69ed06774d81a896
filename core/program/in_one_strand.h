// SPDX-License-Identifier: Apache-2.0
// Plans with strands as the host runs them, and GPUs where no strands can run: as one list of steps.
#pragma once

#include "program/passes/order_strands.h"
#include "program/verify/prove.h"

namespace tutti::program {

/// The plan of a rank without repeats and strands. Its steps have the order that the pass order_strands gives them. The
/// order depends on the plans of all ranks: `source` gives them, within the limits of a proof. Up to kExactRanks ranks,
/// the pass runs the plans of all ranks. For more ranks, it runs the plan of one rank if all plans are its images under
/// a rotation, and the plans of all ranks if they are not. Both give the same order: the times of steps do not depend
/// on the numbers of ranks.
///
/// Fails (kUnsupported) if the plans are too large, (kFailedPrecondition) if the strands deadlock, else as the source
/// does. A plan without strands asks for no other plan.
Result<Plan> in_one_strand(uint32_t rank_count, const PlanSource& source, uint32_t rank,
                           const ProofLimits& limits = {});
/// The same for all ranks. The order is found once, so the source is asked for each plan a fixed number of times.
Result<std::vector<Plan>> all_in_one_strand(uint32_t rank_count, const PlanSource& source,
                                            const ProofLimits& limits = {});

/// Asks an algorithm for the plans of all ranks, once for each, as collect_rolled() does for one. `request.rank` has no
/// meaning.
Result<std::vector<Plan>> collect_all_rolled(const tutti_algorithm_ops& algorithm, void* instance,
                                             const tutti_plan_request& request, uint32_t rank_count);
/// The same as collect() does for one.
Result<std::vector<Plan>> collect_all(const tutti_algorithm_ops& algorithm, void* instance,
                                      const tutti_plan_request& request, uint32_t rank_count);

}  // namespace tutti::program
