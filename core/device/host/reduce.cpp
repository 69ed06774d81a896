// SPDX-License-Identifier: Apache-2.0
#include "tutti/device/host/reduce.h"

#include <cstring>

#include "device/host/reduce_table.h"

namespace tutti::device {
namespace {

const ReduceTable* table_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return &kBaselineTable;
#if defined(__x86_64__)
    case InstructionSet::kAvx2:  // implies F16C, which clang cannot ask for
      return __builtin_cpu_supports("avx2") ? &kAvx2Table : nullptr;
    case InstructionSet::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                 ? &kAvx512Table
                 : nullptr;
#endif
    default:
      return nullptr;
  }
}

}  // namespace

InstructionSet best_instruction_set() {
  if (table_of(InstructionSet::kAvx512) != nullptr) return InstructionSet::kAvx512;
  if (table_of(InstructionSet::kAvx2) != nullptr) return InstructionSet::kAvx2;
  return InstructionSet::kBaseline;
}

const char* to_string(InstructionSet set) {
  switch (set) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "unknown";
}

ReduceFunction select_reduce_for(InstructionSet set, uint32_t data_type, uint32_t reduce_op) {
  constexpr uint32_t kOperatorOf[TUTTI_REDUCE_OP_COUNT] = {0, 1, 2, 3, 0, 0};  // average, pre-multiplied sum: a sum
  const ReduceTable* table = table_of(set);
  if (table == nullptr || data_type >= TUTTI_DATA_TYPE_COUNT || reduce_op >= TUTTI_REDUCE_OP_COUNT) return nullptr;
  return table->functions[data_type][kOperatorOf[reduce_op]];
}

ReduceFunction select_reduce(uint32_t data_type, uint32_t reduce_op) {
  return select_reduce_for(best_instruction_set(), data_type, reduce_op);
}

void copy(void* destination, const void* source, uint64_t bytes) {
  if (destination != source) std::memcpy(destination, source, bytes);
}

}  // namespace tutti::device
