// SPDX-License-Identifier: Apache-2.0
// A plan in the form that kernels run, and how a call is cut for it.
#pragma once

#include "plan/plan.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"

namespace tutti::plan {

/// The program of a plan. `in_place`: input and output share memory the way the collective allows. Fails
/// (kUnsupported) where the plan has more ranks, steps, chunks or peers than a kernel's parameters hold.
///
/// `messages` is what this rank's busiest connection carries per loop; all ranks must run with the largest of any rank.
Result<tutti_cuda_program> lower(const Plan& plan, bool in_place);

/// Cuts a block of `bytes` (> 0) for `ctas` CTAs and a program of `chunks` chunks and `messages` messages per loop,
/// evenly: a slice fits a slot of the layout, a chunk its chunk_slots.
tutti_cuda_cut cut(uint64_t bytes, uint32_t ctas, uint32_t chunks, uint32_t messages, const tutti_slot_layout& layout);

}  // namespace tutti::plan
