// SPDX-License-Identifier: Apache-2.0
// Lowering: a program as kernels run it, and how a call is cut for it.
//
// lower()  Finds    the steps that touch memory of earlier steps of their strand, and the steps that other strands wait
//                   for.
//          Assumes  a valid plan without repeats and messages of several chunks (passes/split_messages.h), within the
//                   limits of kernels. Strands may be there (lower_strands.h).
//          Changes  the form, by encode() (encode.h). Marks the steps with TUTTI_CUDA_STEP_*.
// align()  Makes the programs of all ranks and channels of a call fit each other, by the passes even_messages()
//          (passes/number_messages.h) and overlap_loops() (passes/overlap_loops.h).
// cut()    Finds    the parts, loops, chunks and slices of a block of bytes. Assumes an aligned program. Changes
//          nothing.
#pragma once

#include "program/passes/number_messages.h"
#include "program/plan.h"
#include "program/program.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"

namespace tutti::program {

/// ok: kernels run this plan of one rank. Else kUnsupported: a program holds fewer steps, chunks, sends or receives, or
/// kernels lack an operation of the plan. The text is a reason, to be shown after the plan's name.
Status check_kernel_limits(const Plan& plan);

/// ok: launches of the small form run this plan of one rank, which check_kernel_limits() has accepted, at up to
/// TUTTI_CUDA_SMALL_RANKS ranks. Else kUnsupported with a reason of the same form.
Status check_small_form(const Plan& plan);

/// The program of a plan, for kernels. `in_place`: input and output share memory the way the collective allows. Fails
/// (kUnsupported) for more than TUTTI_CUDA_MAX_RANKS ranks, and where check_kernel_limits does.
/// align() comes before any runs.
Result<Program> lower(const Plan& plan, bool in_place);

/// Makes the programs fit each other. All connections carry as many messages per loop as the busiest connection. Loops
/// get stages if the layout's kernels let loops overlap, and its slots hold the messages that are then under way.
void align(Programs& programs, const tutti_slot_layout& layout);

/// Cuts a block of `bytes` (> 0) for `ctas` CTAs and an aligned program, evenly. A slice fits a slot of the layout. A
/// chunk has as many slices as the connections have slots for it.
tutti_cuda_cut cut(uint64_t bytes, uint32_t ctas, const Program& program, const tutti_slot_layout& layout);

/// The same for a send or a receive.
tutti_cuda_cut cut_message(uint64_t bytes, uint32_t ctas, const tutti_slot_layout& layout);

}  // namespace tutti::program
