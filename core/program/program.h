// SPDX-License-Identifier: Apache-2.0
// A program: a plan lowered for kernels on GPUs. Its type has room for the largest program that kernels run. Launches
// of the small form hold a smaller copy (backend/cuda/launch_builder.h).
#pragma once

#include "tutti/plugin/cuda.h"

namespace tutti::program {

using Program = tutti_cuda_large_program;

}  // namespace tutti::program
