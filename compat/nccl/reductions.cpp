// SPDX-License-Identifier: Apache-2.0
#include "nccl/reductions.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "nccl/api.h"
#include "nccl/comm.h"
#include "nccl/errors.h"

namespace tutti::nccl {
namespace {

// A value: bit 30, the communicator's family, the index.
constexpr uint32_t kMade = 1u << 30;
constexpr uint32_t kIndexBits = 12;
constexpr uint32_t kFamilies = 1u << (30 - kIndexBits);

static_assert(static_cast<uint32_t>(DataType::kFloat8E5M2) == ncclFloat8e5m2 && kDataTypeCount == ncclNumTypes);
static_assert(static_cast<uint32_t>(DataType::kInt64) == ncclInt64 && TUTTI_BFLOAT16 == ncclBfloat16);
static_assert(TUTTI_SUM == ncclSum && TUTTI_PROD == ncclProd && TUTTI_MAX == ncclMax && TUTTI_MIN == ncclMin &&
              TUTTI_AVG == ncclAvg);

}  // namespace

std::optional<DataType> type_of(ncclDataType_t type) {
  const auto value = static_cast<uint32_t>(type);
  if (value >= kDataTypeCount) return std::nullopt;
  return static_cast<DataType>(value);
}

Reductions::Reductions() {
  static std::atomic<uint32_t> families{0};
  family_ = families.fetch_add(1, std::memory_order_relaxed) % kFamilies;
}

std::optional<ncclRedOp_t> Reductions::add(DataType type, uint64_t bits, const void* scalar) {
  auto place = std::find(made_.begin(), made_.end(), std::nullopt);
  if (place == made_.end()) place = made_.insert(place, std::nullopt);
  const auto index = static_cast<uint32_t>(place - made_.begin());
  if (index >> kIndexBits != 0) {
    made_.pop_back();
    return std::nullopt;
  }
  *place = Scaled{type, bits, scalar};
  return static_cast<ncclRedOp_t>(kMade | family_ << kIndexBits | index);
}

std::optional<size_t> Reductions::index_of(ncclRedOp_t op) const {
  const auto value = static_cast<uint32_t>(op);
  const size_t index = value & ((1u << kIndexBits) - 1);
  const bool ours = value >> kIndexBits == ((kMade >> kIndexBits) | family_);
  if (!ours || index >= made_.size() || !made_[index]) return std::nullopt;
  return index;
}

bool Reductions::remove(ncclRedOp_t op) {
  const auto index = index_of(op);
  if (index) made_[*index].reset();
  return index.has_value();
}

std::optional<Factored> Reductions::find(ncclRedOp_t op, DataType type) const {
  if (static_cast<uint32_t>(op) < ncclNumOps) return Factored{static_cast<ReduceOp>(op), nullptr};
  const auto index = index_of(op);
  if (!index || made_[*index]->type != type) return std::nullopt;
  return Factored{Reduction(ReduceOp::kPreMulSum, made_[*index]->bits), made_[*index]->scalar};
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

TUTTI_NCCL(ncclResult_t, ncclRedOpCreatePreMulSum,
           (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
            ncclComm_t comm)) {
  TUTTI_NCCL_TRY(check_usable(comm, "RedOpCreatePreMulSum"));
  const auto type = type_of(datatype);
  if (op == nullptr || scalar == nullptr) return fail(ncclInvalidArgument, "RedOpCreatePreMulSum: a pointer is null");
  if (!type) {
    return fail(ncclInvalidArgument, "RedOpCreatePreMulSum: {} is no data type", static_cast<int>(datatype));
  }
  if (residence != ncclScalarHostImmediate && residence != ncclScalarDevice) {
    return fail(ncclInvalidArgument, "RedOpCreatePreMulSum: {} is no residence", static_cast<int>(residence));
  }
  const bool on_host = residence == ncclScalarHostImmediate;
  uint64_t bits = 0;
  if (on_host) std::memcpy(&bits, scalar, tutti::size_of(*type));
  const auto made = comm->reductions.add(*type, bits, on_host ? nullptr : scalar);
  if (!made) return fail(ncclInvalidUsage, "RedOpCreatePreMulSum: too many at once; destroy those not used any more");
  *op = *made;
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
  TUTTI_NCCL_TRY(check_handle(comm, "RedOpDestroy"));
  if (comm->reductions.remove(op)) return ncclSuccess;
  return fail(ncclInvalidArgument, "RedOpDestroy: {} was not made by RedOpCreatePreMulSum for this communicator",
              static_cast<int>(op));
}
