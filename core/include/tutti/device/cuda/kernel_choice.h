// SPDX-License-Identifier: Apache-2.0
// The tables of a protocol's kernels, and the choice of the kernel for a launch.
//
// Threads: any host thread.
#pragma once

#include "tutti/plugin/cuda.h"

namespace tutti::device {

/// Kernels that differ in the reduction. Averages and pre-multiplied sums use the kernel for sums.
struct ReductionKernels {
  const void* sum = nullptr;
  const void* prod = nullptr;
  const void* max = nullptr;
  const void* min = nullptr;

  /// Null: no kernel has the operation.
  const void* find(uint32_t reduce_op) const {
    switch (reduce_op) {
      case TUTTI_SUM:
      case TUTTI_AVG:
      case TUTTI_PREMUL_SUM:
        return sum;
      case TUTTI_PROD:
        return prod;
      case TUTTI_MAX:
        return max;
      case TUTTI_MIN:
        return min;
      default:
        return nullptr;
    }
  }
};

/// The kernels for one element type, of one form of launches.
struct TypeKernels {
  ReductionKernels programs;
  ReductionKernels direct;         ///< for programs of one hop; null: `programs` runs them
  const void* messages = nullptr;  ///< for sends and receives; null: the type is not used to copy
  ReductionKernels strands = {};   ///< for programs with strands, which have the large form
};

inline bool is_large(const tutti_cuda_launch& launch) {
  return launch.tables.links != nullptr;
}

inline bool has_strands(const tutti_cuda_launch& launch) {
  return launch.tables.strand_count > 0;
}

/// CTAs of the launch.
inline uint32_t ctas_of(const tutti_cuda_launch& launch) {
  return launch.cta_count * (has_strands(launch) ? launch.tables.strand_count : 1);
}

inline bool is_one_hop(const tutti_cuda_launch& launch) {
  return launch.message_count == 0 && (launch.one_hop.send_count > 0 || launch.one_hop.recv_count > 0);
}

/// The kernel that runs a launch of the table's type. Null: there is none.
inline const void* find_kernel(const TypeKernels& kernels, const tutti_cuda_launch& launch) {
  if (launch.message_count > 0) return kernels.messages;
  if (has_strands(launch)) return kernels.strands.find(launch.reduce_op);
  const void* const kernel = is_one_hop(launch) ? kernels.direct.find(launch.reduce_op) : nullptr;
  return kernel != nullptr ? kernel : kernels.programs.find(launch.reduce_op);
}

}  // namespace tutti::device
