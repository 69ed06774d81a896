// SPDX-License-Identifier: Apache-2.0
// Values that all plugin tables share. Compiles as C11, C++20 and with nvcc. The meaning of a value never changes; new
// values are appended.
#pragma once

#include <stdint.h>

/* Data types of one element. */
#define TUTTI_INT8 0u
#define TUTTI_UINT8 1u
#define TUTTI_INT32 2u
#define TUTTI_UINT32 3u
#define TUTTI_INT64 4u
#define TUTTI_UINT64 5u
#define TUTTI_FLOAT16 6u
#define TUTTI_FLOAT32 7u
#define TUTTI_FLOAT64 8u
#define TUTTI_BFLOAT16 9u
#define TUTTI_FLOAT8_E4M3 10u
#define TUTTI_FLOAT8_E5M2 11u
#define TUTTI_DATA_TYPE_COUNT 12u

/* Reductions. TUTTI_PREMUL_SUM multiplies each rank's own input by a scalar before the sum. */
#define TUTTI_SUM 0u
#define TUTTI_PROD 1u
#define TUTTI_MAX 2u
#define TUTTI_MIN 3u
#define TUTTI_AVG 4u
#define TUTTI_PREMUL_SUM 5u
#define TUTTI_REDUCE_OP_COUNT 6u

/* Collectives. */
#define TUTTI_ALL_REDUCE 0u
#define TUTTI_REDUCE_SCATTER 1u
#define TUTTI_ALL_GATHER 2u
#define TUTTI_BROADCAST 3u
#define TUTTI_REDUCE 4u
#define TUTTI_ALL_TO_ALL 5u
#define TUTTI_GATHER 6u
#define TUTTI_SCATTER 7u
#define TUTTI_SEND_RECV 8u
#define TUTTI_COLLECTIVE_COUNT 9u

/* Status codes: the values of tutti::Code in tutti/status.h. */
#define TUTTI_OK 0
#define TUTTI_AGAIN 1
#define TUTTI_INVALID_ARGUMENT 2
#define TUTTI_NOT_FOUND 3
#define TUTTI_UNSUPPORTED 4
#define TUTTI_FAILED_PRECONDITION 5
#define TUTTI_VERSION_MISMATCH 6
#define TUTTI_CONFIG 7
#define TUTTI_SYSTEM 8
#define TUTTI_DEVICE 9
#define TUTTI_REMOTE 10
#define TUTTI_TIMEOUT 11
#define TUTTI_ABORTED 12
#define TUTTI_MISMATCH 13
#define TUTTI_INTERNAL 14

/* Kinds of memory, as bits. A network reports all kinds that it can register; a registration names a single kind.
 * DMABUF: memory of a GPU through register_dmabuf. */
#define TUTTI_MEMORY_HOST 1u
#define TUTTI_MEMORY_CUDA 2u
#define TUTTI_MEMORY_DMABUF 4u
