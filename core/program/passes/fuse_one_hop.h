// SPDX-License-Identifier: Apache-2.0
// The pass `fuse_one_hop`: programs of one hop as lists of sends and receives, which a kernel runs without steps.
//
// Finds    the block of the input that each message comes from, and the final use of each message at its receiver. In a
//          program of one hop, no received data is sent on.
// Assumes  a lowered program of one chunk with at most one message on each connection. Messages are those of the
//          program: another rank may run the program step by step.
// Changes  the form: the result is a tutti_cuda_one_hop beside the program, which stays as it is.
#pragma once

#include <optional>

#include "program/program.h"
#include "tutti/plugin/cuda.h"

namespace tutti::program {

/// The program as one hop, if it is one and has at most TUTTI_CUDA_MAX_HOPS messages each way: places in blocks, slots
/// null. Nothing: it must run step by step. Other ranks' programs may be different.
std::optional<tutti_cuda_one_hop> one_hop(const Program& program);

/// Puts the form of one hop into a launch of the small form whose cut, threads, block size and links are set, if one
/// loop sends all data and a thread handles at most 8 bytes of it. `program`: the program of the launch.
void set_one_hop(const Program& program, tutti_cuda_launch& launch);

}  // namespace tutti::program
