// SPDX-License-Identifier: Apache-2.0
// What nccl.h needs of CUDA, for tests of code that calls none of it, on machines without CUDA.
#pragma once

typedef struct CUstream_st* cudaStream_t;
