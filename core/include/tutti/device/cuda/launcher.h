// SPDX-License-Identifier: Apache-2.0
// The host's side of a protocol's kernels: they are loaded and started. For the CUDA runtime.
//
// Threads: any host thread. The functions act on the thread's current GPU.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "tutti/device/cuda/kernel_choice.h"

namespace tutti::device {

/// Loads all kernels of a protocol on the current GPU, and permits `shared_bytes` of dynamic shared memory. A kernel
/// that is loaded at its first start may wait for all running kernels, and a running kernel may wait for a peer that
/// waits for this rank.
inline cudaError_t load_kernels(const TypeKernels* const (&all)[TUTTI_DATA_TYPE_COUNT], uint32_t shared_bytes = 0) {
  for (const TypeKernels* of_type : all) {
    const auto& [programs, direct, messages, strands] = *of_type;
    for (const void* kernel : {programs.sum, programs.prod, programs.max, programs.min, direct.sum, direct.prod,
                               direct.max, direct.min, messages, strands.sum, strands.prod, strands.max, strands.min}) {
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

/// The parameters of a kernel's start.
struct Start {
  const void* kernel = nullptr;
  uint32_t threads = 32;      ///< per CTA
  uint32_t shared_bytes = 0;  ///< dynamic, per CTA
  bool in_clusters = false;   ///< CTAs lie evenly on SMs: compute capability 9.0 and later
};

/// The launch configuration for CUDA, of `ctas` × `strands` CTAs. It refers to `cluster`, which this function fills.
inline cudaLaunchConfig_t config_of(const Start& start, uint32_t ctas, uint32_t strands, void* stream,
                                    cudaLaunchAttribute& cluster) {
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = TUTTI_CUDA_CLUSTER;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas, strands);
  config.blockDim = dim3(start.threads);
  config.dynamicSmemBytes = start.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &cluster;
  config.numAttrs = start.in_clusters && ctas % TUTTI_CUDA_CLUSTER == 0 ? 1 : 0;
  return config;
}

/// Whether the current GPU has room for a cluster of these CTAs. With MPS or MIG, only the part of this process counts.
inline bool fits_in_clusters(Start start) {
  start.in_clusters = true;
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = config_of(start, TUTTI_CUDA_CLUSTER, 1, nullptr, cluster);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, start.kernel, &config) == cudaSuccess) return clusters > 0;
  cudaGetLastError();  // clears the error: lack of clusters is no failure
  return false;
}

/// The number of CTAs of a kernel that the current GPU holds at the same time, with clusters and without. With MPS or
/// MIG, only the part of this process counts.
inline cudaError_t resident_ctas(Start start, uint32_t multiprocessors, uint32_t& ctas) {
  int of_one = 0;
  if (const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
          &of_one, start.kernel, static_cast<int>(start.threads), start.shared_bytes);
      error != cudaSuccess) {
    return error;
  }
  ctas = static_cast<uint32_t>(of_one) * multiprocessors;
  start.in_clusters = true;
  cudaLaunchAttribute cluster{};
  const cudaLaunchConfig_t config = config_of(start, TUTTI_CUDA_CLUSTER, 1, nullptr, cluster);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, start.kernel, &config) != cudaSuccess) cudaGetLastError();
  if (clusters > 0) ctas = std::min(ctas, static_cast<uint32_t>(clusters) * TUTTI_CUDA_CLUSTER);
  return cudaSuccess;
}

/// The number of CTAs of any kernel for strands that the current GPU holds at the same time, at most
/// TUTTI_CUDA_MAX_CTAS. `start`: of each kernel, with up to `most_shared_bytes` in later launches. An SM holds each
/// kernel at least once, so the kernels of a GPU with twice as many SMs are not loaded here: clusters leave at most
/// half of its SMs idle.
inline cudaError_t resident_strands(const TypeKernels* const (&all)[TUTTI_DATA_TYPE_COUNT], Start start,
                                    uint32_t most_shared_bytes, uint32_t& ctas) {
  int gpu = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaGetDevice(&gpu);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, gpu);
  ctas = TUTTI_CUDA_MAX_CTAS;
  if (error != cudaSuccess || static_cast<uint32_t>(multiprocessors) >= 2 * TUTTI_CUDA_MAX_CTAS) return error;
  for (const TypeKernels* of_type : all) {
    const ReductionKernels& kernels = of_type->strands;
    for (const void* kernel : {kernels.sum, kernels.prod, kernels.max, kernels.min}) {
      if (kernel == nullptr) continue;
      start.kernel = kernel;
      if (most_shared_bytes > 0) {
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(most_shared_bytes));
      }
      uint32_t of_kernel = 0;
      if (error == cudaSuccess) error = resident_ctas(start, static_cast<uint32_t>(multiprocessors), of_kernel);
      if (error != cudaSuccess) return error;
      ctas = std::min(ctas, of_kernel);
    }
  }
  return cudaSuccess;
}

/// Enqueues the kernel. A GPU distributes single CTAs unevenly over its groups of SMs, and all CTAs wait for the group
/// with the most CTAs. It distributes clusters evenly. Fails (cudaErrorInvalidDeviceFunction) if no kernel runs the
/// launch.
inline cudaError_t start_kernel(const Start& start, const tutti_cuda_launch& launch, void* stream) {
  if (start.kernel == nullptr) return cudaErrorInvalidDeviceFunction;
  auto* parameters = const_cast<tutti_cuda_launch*>(&launch);
  void* arguments[] = {parameters};
  cudaLaunchAttribute cluster{};
  const uint32_t strands = has_strands(launch) ? launch.tables.strand_count : 1;
  const cudaLaunchConfig_t config = config_of(start, launch.cta_count, strands, stream, cluster);
  return cudaLaunchKernelExC(&config, start.kernel, arguments);
}

}  // namespace tutti::device
