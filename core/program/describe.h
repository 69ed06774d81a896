// SPDX-License-Identifier: Apache-2.0
// A plan in words a reader of NCCL knows.
#pragma once

#include <string>

#include "program/plan.h"

namespace tutti::program {

/// The NCCL-like name of a step: "send", "recvReduceSend", "recvReduceCopySend", "recvCopySend", "copySend", "gather"
/// ...
std::string primitive_name(const Plan& plan, const tutti_plan_step& step);

/// The operands and the targets of a step: "rank 3 + input[2] -> output[2], rank 1".
std::string step_text(const Plan& plan, const tutti_plan_step& step);

/// The chunks of a list in a buffer, as in "input[2]": "2"; "2-5" for neighbours; "2,6,10,14" for up to four other
/// chunks, and "0,4...28" for more.
std::string chunks_text(const Plan& plan, uint8_t buffer, uint32_t first, uint32_t stride, uint32_t count);

/// One line per step, with a list of chunks where the step has several: "2  recvReduceCopySend  3 + input[2] ->
/// output[2], rank 1   final". Steps of a repeat stand once, with the number that the first round has. So do the
/// steps that a step waits for.
std::string to_text(const Plan& plan);

}  // namespace tutti::program
