// SPDX-License-Identifier: Apache-2.0
#include "tutti/types.h"

#include <array>

namespace tutti {
namespace {

struct TypeInfo {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<TypeInfo, kDataTypeCount> kTypes = {{{"int8", 1},
                                                          {"uint8", 1},
                                                          {"int32", 4},
                                                          {"uint32", 4},
                                                          {"int64", 8},
                                                          {"uint64", 8},
                                                          {"float16", 2},
                                                          {"float32", 4},
                                                          {"float64", 8},
                                                          {"bfloat16", 2},
                                                          {"float8e4m3", 1},
                                                          {"float8e5m2", 1}}};
constexpr std::array<std::string_view, kReduceOpCount> kOps = {"sum", "prod", "max", "min", "avg", "premul_sum"};
constexpr std::array<std::string_view, kCollectiveCount> kCollectives = {"all_reduce", "reduce_scatter", "all_gather",
                                                                         "broadcast",  "reduce",         "all_to_all",
                                                                         "gather",     "scatter",        "send_recv"};

template <class Enum, size_t N>
std::optional<Enum> find_name(const std::array<std::string_view, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

template <class Enum, size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace

size_t size_of(DataType type) {
  const auto index = static_cast<size_t>(type);
  return index < kTypes.size() ? kTypes[index].bytes : 0;
}

std::string_view to_string(DataType type) {
  const auto index = static_cast<size_t>(type);
  return index < kTypes.size() ? kTypes[index].name : "unknown";
}

std::string_view to_string(ReduceOp op) {
  return name_of(kOps, op);
}
std::string_view to_string(Collective collective) {
  return name_of(kCollectives, collective);
}

std::optional<DataType> data_type_from(std::string_view name) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i].name == name) return static_cast<DataType>(i);
  }
  return std::nullopt;
}

std::optional<ReduceOp> reduce_op_from(std::string_view name) {
  return find_name<ReduceOp>(kOps, name);
}
std::optional<Collective> collective_from(std::string_view name) {
  return find_name<Collective>(kCollectives, name);
}

}  // namespace tutti
