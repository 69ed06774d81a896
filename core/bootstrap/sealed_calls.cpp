// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/sealed_calls.h"

#include <fmt/format.h>

#include <utility>

namespace tutti::bootstrap {
namespace {

constexpr size_t kMoreBytes = sizeof(uint32_t) + Seal::kMoreBytes;  // for each rank

}  // namespace

Result<std::unique_ptr<SealedCalls>> SealedCalls::create(const Secret& secret, Membership membership,
                                                         Exchange exchange) {
  TUTTI_ASSIGN(std::unique_ptr<const Seal> seal, Seal::create(secret));
  return std::unique_ptr<SealedCalls>(new SealedCalls(std::move(seal), membership, std::move(exchange)));
}

Result<std::vector<Bytes>> SealedCalls::all_gather(std::span<const std::byte> mine, base::Time deadline) {
  const uint32_t number = ++calls_;
  if (mine.size() > kMaxPayloadBytes - kMoreBytes) {
    return Status(Code::kInvalidArgument, fmt::format("bootstrap all_gather of {} bytes: the limit is {}", mine.size(),
                                                      kMaxPayloadBytes - kMoreBytes));
  }
  TUTTI_ASSIGN(Bytes sealed, seal_->close(mine, {number, membership_.rank}));
  const Header call = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kAllGather)};
  TUTTI_ASSIGN(const Bytes gathered, exchange_(call, std::move(sealed), deadline));
  TUTTI_ASSIGN(const auto sealed_parts, entries_of(gathered));
  if (sealed_parts.size() != static_cast<size_t>(membership_.rank_count)) {
    return Status(Code::kMismatch, fmt::format("the rendezvous returns contributions of {} ranks, not of {}; check the "
                                               "machines and links between the ranks and the hub",
                                               sealed_parts.size(), membership_.rank_count));
  }
  std::vector<Bytes> all;
  all.reserve(sealed_parts.size());
  for (int32_t rank = 0; const std::span<const std::byte> part : sealed_parts) {
    TUTTI_ASSIGN(all.emplace_back(), seal_->open(part, {number, rank}));
    ++rank;
  }
  return all;
}

Result<Bytes> SealedCalls::broadcast(int root, std::span<const std::byte> bytes, base::Time deadline) {
  const uint32_t number = ++calls_;
  const size_t limit = kMaxPayloadBytes - kMoreBytes * static_cast<size_t>(membership_.rank_count);
  if (root < 0 || root >= membership_.rank_count || bytes.size() > limit) {
    return Status(Code::kInvalidArgument,
                  fmt::format("bootstrap broadcast of {} bytes from rank {}: the limits are {} bytes and ranks 0..{}",
                              bytes.size(), root, limit, membership_.rank_count - 1));
  }
  Bytes sealed;
  if (root == membership_.rank) {
    TUTTI_ASSIGN(sealed, seal_->close(bytes, {number, root}));
  }
  const Header call = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBroadcast), .rank = root};
  TUTTI_ASSIGN(const Bytes got, exchange_(call, std::move(sealed), deadline));
  return seal_->open(got, {number, root});
}

}  // namespace tutti::bootstrap
