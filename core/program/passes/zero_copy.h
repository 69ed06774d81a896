// SPDX-License-Identifier: Apache-2.0
// Which values of a plan stay where they are.
#pragma once

#include "program/plan.h"

namespace tutti::program {

/// Sets TUTTI_STEP_STABLE on each step whose value is kept in, or comes from, a chunk that no later step of this rank
/// overwrites. `in_place`: the input and output share memory the way the collective allows. Loops cover different data,
/// so one pass over the steps tells.
void mark_stable(Plan& plan, bool in_place);

}  // namespace tutti::program
