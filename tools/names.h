// SPDX-License-Identifier: Apache-2.0
// Names on the command line: types, operators, collectives and sizes.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "tutti/types.h"

namespace CLI {
class Validator;
}

namespace tutti::tools {

/// Every name of DataType, ReduceOp or Collective, in the order of their values.
template <class Enum>
std::vector<std::string> all_names() {
  constexpr uint32_t kCount = std::is_same_v<Enum, DataType>   ? kDataTypeCount
                              : std::is_same_v<Enum, ReduceOp> ? kReduceOpCount
                                                               : kCollectiveCount;
  std::vector<std::string> names;
  for (uint32_t i = 0; i < kCount; ++i) names.emplace_back(to_string(static_cast<Enum>(i)));
  return names;
}

/// Accepts only these names; for a different name, the error lists them.
CLI::Validator one_of(std::vector<std::string> names);

/// Turns "64K" into "65536". Units are powers of 1024; "KB" and "KiB" mean the same as "K".
extern const CLI::Validator kSize;

/// Accepts only numbers from 1 on, or from 0 on. The texts of CLI11 for them have 300 digits.
extern const CLI::Validator kFromOne, kFromZero;

}  // namespace tutti::tools
