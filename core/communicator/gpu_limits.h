// SPDX-License-Identifier: Apache-2.0
// What kernels on GPUs run. Needs no GPU, and is in builds without CUDA too: dry communicators give the answers of real
// ones.
#pragma once

#include "tuner/back_end.h"

namespace tutti::communicator {

/// Lives as long as the process.
const tuner::BackEnd& gpu_back_end();

}  // namespace tutti::communicator
