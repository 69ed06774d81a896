// SPDX-License-Identifier: Apache-2.0
// Programs of one hop: each message goes from the input straight to its final use at the receiver.
#pragma once

#include <optional>

#include "tutti/plugin/cuda.h"

namespace tutti::program {

/// The program as one hop, if it is one and has at most TUTTI_CUDA_MAX_HOPS messages each way: places in blocks, slots
/// null. Nothing: it must run step by step. Other ranks' programs may be different.
std::optional<tutti_cuda_one_hop> one_hop(const tutti_cuda_program& program);

/// Puts the form of one hop into a launch whose program, cut, threads, block size and links are set, if one loop sends
/// all data and a thread handles at most 8 bytes of it.
void set_one_hop(tutti_cuda_launch& launch);

}  // namespace tutti::program
