// SPDX-License-Identifier: Apache-2.0
// Strands as kernels run them: each strand of a channel in a CTA of its own.
//
// lower_strands()  Finds    the ranges of steps, the connections on which each strand signals `done`, and for each step
//                           how many steps of each strand it waits for.
//                  Assumes  a plan that lower() takes, with strands or without, and without why_too_long().
//                  Changes  the form of waits: a step waits for the last step of each strand that its waits name, as
//                           the steps of a strand run in order.
#pragma once

#include <span>
#include <string>

#include "program/plan.h"
#include "tutti/plugin/cuda.h"

namespace tutti::program {

/// The strands of a program as kernels read them, and their waits.
using Strands = tutti_cuda_strands;

/// The strands of a plan; a single strand with all steps if the plan has none.
Strands lower_strands(const Plan& plan);

/// Why kernels run the plans of a channel as lists, although some have strands. Empty: each strand runs in a CTA of its
/// own. `all_ranks`: with their strands, without repeats. Example: "kernels run up to 8 strands, and the plan of rank 0
/// has 12".
std::string why_in_lists(std::span<const Plan> all_ranks);

/// Why kernels do not run the plans of a channel in a launch with strands, of this channel or of a different one.
/// Empty: no plan has more than TUTTI_CUDA_MAX_STRAND_STEPS steps.
std::string why_too_long(std::span<const Plan> all_ranks);

/// Why kernels run plans with up to so many strands as lists, on GPUs that hold `ctas` CTAs of a launch with strands at
/// the same time. Strands wait for each other, so all of them must run. Empty: the GPUs hold the strands.
std::string why_no_room(uint32_t strands, uint32_t ctas);

/// The most strands of any of the plans, from 1 on.
uint32_t most_strands(std::span<const Plan> plans);

}  // namespace tutti::program
