// SPDX-License-Identifier: Apache-2.0
// Encoding: a plan in the form that executors and kernels run.
//
// encode()  Finds    the block and chunk of each chunk number, and the position of the own contribution in each fold.
//                    The pass number_messages (passes/number_messages.h) finds the number of each message.
//           Assumes  a valid plan without repeats. The host runs plans without strands. lower.h has the strands of
//                    GPUs.
//           Changes  the form: the result is a program. Each send and each receive gets an entry of its own in `peers`,
//                    step by step: those of `recv`, then those of `send`. Sends that are in no order begin with the
//                    next rank. The host and GPUs run the result; GPUs run it after the passes of lower.h.
#pragma once

#include "program/plan.h"
#include "program/program.h"

namespace tutti::program {

/// The program of a plan of one rank.
Program encode(const Plan& plan);

}  // namespace tutti::program
