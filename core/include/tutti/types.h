// SPDX-License-Identifier: Apache-2.0
// The enumerations of all calls: data types, reductions, collectives. Their values equal the values of the plugin ABI
// (plugin/types.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "tutti/plugin/types.h"
#include "tutti/status.h"

namespace tutti {

/// The type of one element.
enum class DataType : uint32_t {
  kInt8 = TUTTI_INT8,
  kUint8 = TUTTI_UINT8,
  kInt32 = TUTTI_INT32,
  kUint32 = TUTTI_UINT32,
  kInt64 = TUTTI_INT64,
  kUint64 = TUTTI_UINT64,
  kFloat16 = TUTTI_FLOAT16,
  kFloat32 = TUTTI_FLOAT32,
  kFloat64 = TUTTI_FLOAT64,
  kBfloat16 = TUTTI_BFLOAT16,
  kFloat8E4M3 = TUTTI_FLOAT8_E4M3,
  kFloat8E5M2 = TUTTI_FLOAT8_E5M2,
};
inline constexpr uint32_t kDataTypeCount = TUTTI_DATA_TYPE_COUNT;

/// The operation that reduces the contributions of all ranks to one value. kAvg divides the sum by the number of ranks.
/// kPreMulSum multiplies each rank's input by the scalar of this rank before the sum.
enum class ReduceOp : uint32_t {
  kSum = TUTTI_SUM,
  kProd = TUTTI_PROD,
  kMax = TUTTI_MAX,
  kMin = TUTTI_MIN,
  kAvg = TUTTI_AVG,
  kPreMulSum = TUTTI_PREMUL_SUM,
};
inline constexpr uint32_t kReduceOpCount = TUTTI_REDUCE_OP_COUNT;

/// A collective operation, or sends and receives (kSendRecv).
enum class Collective : uint32_t {
  kAllReduce = TUTTI_ALL_REDUCE,
  kReduceScatter = TUTTI_REDUCE_SCATTER,
  kAllGather = TUTTI_ALL_GATHER,
  kBroadcast = TUTTI_BROADCAST,
  kReduce = TUTTI_REDUCE,
  kAllToAll = TUTTI_ALL_TO_ALL,
  kGather = TUTTI_GATHER,
  kScatter = TUTTI_SCATTER,
  kSendRecv = TUTTI_SEND_RECV,
};
inline constexpr uint32_t kCollectiveCount = TUTTI_COLLECTIVE_COUNT;

/// The size of one element in bytes: 1, 2, 4 or 8; 0 if the value is no DataType. Threads: any.
TUTTI_API size_t size_of(DataType type);

/// The names in configurations, tables and messages: "float32", "sum", "all_reduce". Names are static strings.
/// An unknown value has the name "unknown"; an unknown name has no value. Threads: any.
TUTTI_API std::string_view to_string(DataType type);
TUTTI_API std::string_view to_string(ReduceOp op);
TUTTI_API std::string_view to_string(Collective collective);
TUTTI_API std::optional<DataType> data_type_from(std::string_view name);
TUTTI_API std::optional<ReduceOp> reduce_op_from(std::string_view name);
TUTTI_API std::optional<Collective> collective_from(std::string_view name);

/// The queue on which a device runs a call (a cudaStream_t). The host device has no streams: pass nothing.
using Stream = void*;

/// A reduction with its scalar. Converts from ReduceOp; make a pre-multiplied sum with pre_mul_sum().
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  uint64_t scalar = 0;  ///< kPreMulSum: the bits of one element of the call's type, in the low bytes

  Reduction(ReduceOp operation) : op(operation) {}  // NOLINT(google-explicit-constructor)
  Reduction(ReduceOp operation, uint64_t factor) : op(operation), scalar(factor) {}
};

}  // namespace tutti
