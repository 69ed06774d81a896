// SPDX-License-Identifier: Apache-2.0
// The kernels of the plugin that includes this, by form of launches and element type: one file for each form and type
// defines its own (tutti_cuda_kernels() makes them of templates). A plugin without kernels of the large form does not
// use kLarge and kernel_of().
//
// Threads: any host thread.
// Errors: load_all() returns the error of CUDA.
#pragma once

#include "tutti/device/cuda/launcher.h"

namespace tutti::kernels {

extern const device::TypeKernels k_int8, k_uint8, k_int32, k_uint32, k_int64, k_uint64, k_float16, k_float32, k_float64,
    k_bfloat16, k_float8_e4m3, k_float8_e5m2;
extern const device::TypeKernels k_large_int8, k_large_uint8, k_large_int32, k_large_uint32, k_large_int64,
    k_large_uint64, k_large_float16, k_large_float32, k_large_float64, k_large_bfloat16, k_large_float8_e4m3,
    k_large_float8_e5m2;

/// The kernels of the small form, in the order of the TUTTI_* data types.
inline const device::TypeKernels* const kAll[TUTTI_DATA_TYPE_COUNT] = {
    &k_int8,    &k_uint8,   &k_int32,   &k_uint32,   &k_int64,       &k_uint64,
    &k_float16, &k_float32, &k_float64, &k_bfloat16, &k_float8_e4m3, &k_float8_e5m2};
/// The kernels of the large form, in the same order.
inline const device::TypeKernels* const kLarge[TUTTI_DATA_TYPE_COUNT] = {
    &k_large_int8,    &k_large_uint8,    &k_large_int32,       &k_large_uint32,
    &k_large_int64,   &k_large_uint64,   &k_large_float16,     &k_large_float32,
    &k_large_float64, &k_large_bfloat16, &k_large_float8_e4m3, &k_large_float8_e5m2};

/// Loads the kernels of both forms; see load_kernels().
inline cudaError_t load_all() {
  const cudaError_t error = device::load_kernels(kAll);
  return error == cudaSuccess ? device::load_kernels(kLarge) : error;
}

/// The kernel of a launch of any form.
inline const void* kernel_of(const tutti_cuda_launch& launch) {
  return device::find_kernel(*(device::is_large(launch) ? kLarge : kAll)[launch.data_type], launch);
}

}  // namespace tutti::kernels
