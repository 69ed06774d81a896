// SPDX-License-Identifier: Apache-2.0
// The types of CUDA that nccl.h needs, for tests of code that calls no CUDA, on machines without CUDA.
#pragma once

typedef struct CUstream_st* cudaStream_t;
