// SPDX-License-Identifier: Apache-2.0
// Reductions that an application makes for one communicator: sums of inputs, each times a scalar.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "nccl/nccl.h"
#include "tutti/communicator.h"

namespace tutti::nccl {

/// The type in Tutti's words; nullopt for a value that is none.
std::optional<DataType> type_of(ncclDataType_t type);

/// A reduction whose scalar may have to be read first, in the order of the stream that it is used on.
struct Factored {
  Reduction reduction = ReduceOp::kSum;
  const void* scalar = nullptr;  ///< in the GPU's memory; null: `reduction` is complete
};

/// One thread at a time.
class Reductions {
 public:
  Reductions();
  /// `bits`: one element of the type, unless `scalar` says where that is.
  std::optional<ncclRedOp_t> add(DataType type, uint64_t bits, const void* scalar);
  bool remove(ncclRedOp_t op);
  /// The built-in operators, and the operators that were made here for this type.
  std::optional<Factored> find(ncclRedOp_t op, DataType type) const;

 private:
  struct Scaled {
    DataType type;
    uint64_t bits;
    const void* scalar;
  };
  std::optional<size_t> index_of(ncclRedOp_t op) const;

  uint32_t family_;  // part of the values, so that operators of different communicators are recognised
  std::vector<std::optional<Scaled>> made_;
};

}  // namespace tutti::nccl
