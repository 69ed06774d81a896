// SPDX-License-Identifier: Apache-2.0
// A plan in words a reader of NCCL knows.
#pragma once

#include <string>

#include "program/plan.h"

namespace tutti::program {

/// The NCCL-like name of a step: "send", "recvReduceSend", "recvReduceCopySend", "recvCopySend", "copySend", "gather"
/// ...
std::string primitive_name(const Plan& plan, const tutti_plan_step& step);

/// One line per step, with a list of chunks where the step has several: "2  recvReduceCopySend  3 + input[2] ->
/// output[2], rank 1   final". Steps of a repeat stand once, with the number that the first round has.
std::string to_text(const Plan& plan);

}  // namespace tutti::program
