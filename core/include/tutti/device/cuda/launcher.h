// SPDX-License-Identifier: Apache-2.0
// The host's side of a protocol's kernels: a table to find one in, and how to start it. For the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include "tutti/plugin/cuda.h"

namespace tutti::device {

/// The kernels for one element type: by reduction, and for sends and receives (null where the type is not used to
/// copy).
struct TypeKernels {
  const void* sum;
  const void* prod;
  const void* max;
  const void* min;
  const void* messages;
};

/// Averages and pre-multiplied sums are sums with something before or after.
inline const void* find_kernel(const TypeKernels& kernels, const tutti_cuda_launch& launch) {
  if (launch.message_count > 0) return kernels.messages;
  switch (launch.reduce_op) {
    case TUTTI_PROD:
      return kernels.prod;
    case TUTTI_MAX:
      return kernels.max;
    case TUTTI_MIN:
      return kernels.min;
    default:
      return kernels.sum;
  }
}

/// Loads all kernels of a protocol on the calling thread's GPU: one that is loaded when it is first started may wait
/// for all that run, and those for a peer that waits for it. Lets them take `shared_bytes` of dynamic shared memory.
inline cudaError_t load_kernels(const TypeKernels* const (&all)[TUTTI_DATA_TYPE_COUNT], uint32_t shared_bytes = 0) {
  for (const TypeKernels* of_type : all) {
    for (const void* kernel : {of_type->sum, of_type->prod, of_type->max, of_type->min, of_type->messages}) {
      cudaFuncAttributes attributes;
      if (kernel == nullptr) continue;
      if (const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel); error != cudaSuccess) return error;
      if (shared_bytes == 0) continue;
      const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

/// How a kernel is started.
struct Start {
  const void* kernel = nullptr;
  uint32_t threads = 32;      ///< per CTA
  uint32_t shared_bytes = 0;  ///< dynamic, per CTA
  bool in_clusters = false;   ///< CTAs lie evenly on SMs: compute capability 9.0 and later
};

/// What CUDA is told of it. Refers to `cluster`, which it fills.
inline cudaLaunchConfig_t config_of(const Start& start, uint32_t ctas, void* stream, cudaLaunchAttribute& cluster) {
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = TUTTI_CUDA_CLUSTER;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(start.threads);
  config.dynamicSmemBytes = start.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &cluster;
  config.numAttrs = start.in_clusters && ctas % TUTTI_CUDA_CLUSTER == 0 ? 1 : 0;
  return config;
}

/// Whether the calling thread's GPU, or the part of it that this process has, holds a cluster of them.
inline bool fits_in_clusters(Start start) {
  start.in_clusters = true;
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = config_of(start, TUTTI_CUDA_CLUSTER, nullptr, cluster);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, start.kernel, &config) == cudaSuccess) return clusters > 0;
  cudaGetLastError();  // that one is no error
  return false;
}

/// Enqueues it. A GPU deals single CTAs out to its groups of SMs unevenly, and all wait for those that share one's way
/// out with most others; clusters it deals out evenly.
inline cudaError_t start_kernel(const Start& start, const tutti_cuda_launch& launch, void* stream) {
  auto* parameters = const_cast<tutti_cuda_launch*>(&launch);
  void* arguments[] = {parameters};
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = config_of(start, launch.cta_count, stream, cluster);
  return cudaLaunchKernelExC(&config, start.kernel, arguments);
}

}  // namespace tutti::device
