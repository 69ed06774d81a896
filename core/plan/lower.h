// SPDX-License-Identifier: Apache-2.0
// A plan in the form that kernels run, and how a call is cut for it.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"

namespace tutti::plan {

/// ok: kernels run this plan of one rank. Else kUnsupported: a kernel's parameters hold fewer steps, chunks, sends or
/// receives; or the plan does what kernels do not. The text is a reason to show behind the plan's name.
Status check_kernel_limits(const Plan& plan);

/// The program of a plan. `in_place`: input and output share memory the way the collective allows. Fails
/// (kUnsupported) for more than TUTTI_CUDA_MAX_RANKS ranks, and where check_kernel_limits does.
/// align() comes before any runs.
Result<tutti_cuda_program> lower(const Plan& plan, bool in_place);

/// The programs of a call: by channel, then by rank.
using Programs = std::vector<std::vector<tutti_cuda_program>>;

/// Makes them fit each other: as many messages per loop as the busiest connection carries; and stages, where the
/// layout's kernels let loops overlap and its slots hold what is on its way then.
void align(Programs& programs, const tutti_slot_layout& layout);

/// Cuts a block of `bytes` (> 0) for `ctas` CTAs and an aligned program, evenly: a slice fits a slot of the layout, a
/// chunk as many as the connections have for it.
tutti_cuda_cut cut(uint64_t bytes, uint32_t ctas, const tutti_cuda_program& program, const tutti_slot_layout& layout);

/// Likewise for a send or a receive.
tutti_cuda_cut cut_message(uint64_t bytes, uint32_t ctas, const tutti_slot_layout& layout);

}  // namespace tutti::plan
