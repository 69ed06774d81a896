// SPDX-License-Identifier: Apache-2.0
// The kernels of each instruction set, as reduce_kernels.inc defines them.
#pragma once

#include "tutti/device/host/reduce.h"
#include "tutti/plugin/types.h"

namespace tutti::device {

inline constexpr uint32_t kOperatorCount = 4;  // sum, product, max, min; average and pre-multiplied sum are sums

struct ReduceTable {
  ReduceFunction functions[TUTTI_DATA_TYPE_COUNT][kOperatorCount];
};
extern const ReduceTable kBaselineTable;
#if defined(__x86_64__)
extern const ReduceTable kAvx2Table;
extern const ReduceTable kAvx512Table;
#endif

}  // namespace tutti::device
