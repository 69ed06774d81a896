// SPDX-License-Identifier: Apache-2.0
// The pass `zero_copy`: which values of a plan stay where they are, so that a receiver may read them there.
//
// Finds    each step with one chunk whose value is kept in, or comes from, a chunk that no later step of this rank
//          overwrites. A chunk of scratch is overwritten by the next loop.
// Assumes  a plan without repeats. Loops cover different data of the input and the output.
// Changes  the flags of these steps: sets TUTTI_STEP_STABLE.
#pragma once

#include "program/plan.h"

namespace tutti::program {

/// Sets TUTTI_STEP_STABLE on each step of a stable value. `in_place`: the input and output share memory the way the
/// collective allows.
void mark_stable(Plan& plan, bool in_place);

}  // namespace tutti::program
