// SPDX-License-Identifier: Apache-2.0
// The limits of kernels on GPUs. Needs no GPU, and is in builds without CUDA, too: dry communicators give the answers
// of real communicators.
#pragma once

#include "tuner/back_end.h"

namespace tutti::backend {

/// Lives as long as the process.
const tuner::BackEnd& gpu_back_end();

}  // namespace tutti::backend
