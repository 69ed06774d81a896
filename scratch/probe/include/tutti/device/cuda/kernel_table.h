// SPDX-License-Identifier: Apache-2.0
// The kernels of the plugin that includes this, by element type: one file for each type defines its own
// (tutti_cuda_kernels() makes them of a template).
#pragma once

#include "tutti/device/cuda/launcher.h"

namespace tutti::kernels {

extern const device::TypeKernels k_int8, k_uint8, k_int32, k_uint32, k_int64, k_uint64, k_float16, k_float32, k_float64,
    k_bfloat16, k_float8_e4m3, k_float8_e5m2;

/// In the order of the TUTTI_* data types.
inline const device::TypeKernels* const kAll[TUTTI_DATA_TYPE_COUNT] = {
    &k_int8,    &k_uint8,   &k_int32,   &k_uint32,   &k_int64,       &k_uint64,
    &k_float16, &k_float32, &k_float64, &k_bfloat16, &k_float8_e4m3, &k_float8_e5m2};

}  // namespace tutti::kernels
