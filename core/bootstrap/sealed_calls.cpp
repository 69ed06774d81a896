// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/sealed_calls.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace tutti::bootstrap {
namespace {

constexpr size_t kMoreBytes = sizeof(uint32_t) + Seal::kMoreBytes;  // for each rank

}  // namespace

Result<std::unique_ptr<SealedCalls>> SealedCalls::create(const Secret& secret, Membership membership,
                                                         Exchange exchange) {
  TUTTI_ASSIGN(std::unique_ptr<const Seal> seal, Seal::create(secret));
  TUTTI_ASSIGN(std::shared_ptr<SharedResults> shared, SharedResults::of(secret));
  return std::unique_ptr<SealedCalls>(
      new SealedCalls(std::move(seal), std::move(shared), membership, std::move(exchange)));
}

Result<Gathered> SealedCalls::all_gather(std::span<const std::byte> mine, base::Time deadline) {
  if (mine.size() > kMaxPayloadBytes - kMoreBytes) {
    return Status(Code::kInvalidArgument, fmt::format("bootstrap all_gather of {} bytes: the limit is {}", mine.size(),
                                                      kMaxPayloadBytes - kMoreBytes));
  }
  const uint32_t number = ++calls_;
  TUTTI_ASSIGN(Bytes sealed, seal_->close(mine, {number, membership_.rank}));
  const Header call = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kAllGather)};
  TUTTI_ASSIGN(Bytes gathered, exchange_(call, std::move(sealed), deadline));
  const auto open_here = [this, number](std::span<const std::byte> bytes) { return open(number, bytes); };
  const long members = shared_.use_count();
  Result<Gathered> opened =
      members == 1 ? open_here(gathered) : shared_->get(number, members, std::move(gathered), open_here);
  if (!opened.ok()) return opened;
  if (opened->size() != static_cast<size_t>(membership_.rank_count)) {
    return Status(Code::kMismatch, fmt::format("the rendezvous returns contributions of {} ranks, not of {}; check the "
                                               "machines and links between the ranks and the hub",
                                               opened->size(), membership_.rank_count));
  }
  return opened;
}

/// Opens the parts of all ranks into one piece of memory.
Result<Gathered> SealedCalls::open(uint32_t call, std::span<const std::byte> gathered) const {
  TUTTI_ASSIGN(const auto sealed_parts, entries_of(gathered));
  size_t total = 0;
  for (const std::span<const std::byte> sealed : sealed_parts) total += Seal::opened_bytes(sealed);
  Bytes bytes(total);
  std::vector<Gathered::Part> parts;
  parts.reserve(sealed_parts.size());
  std::span<std::byte> rest(bytes);
  for (int32_t rank = 0; const std::span<const std::byte> sealed : sealed_parts) {
    const std::span<std::byte> plain = rest.first(Seal::opened_bytes(sealed));
    TUTTI_TRY(seal_->open(sealed, {call, rank}, plain));
    parts.emplace_back(plain);
    rest = rest.subspan(plain.size());
    ++rank;
  }
  return Gathered(std::move(bytes), std::move(parts));
}

Result<Bytes> SealedCalls::broadcast(int root, std::span<const std::byte> bytes, base::Time deadline) {
  const size_t limit = kMaxPayloadBytes - kMoreBytes * static_cast<size_t>(membership_.rank_count);
  if (root < 0 || root >= membership_.rank_count || bytes.size() > limit) {
    return Status(Code::kInvalidArgument,
                  fmt::format("bootstrap broadcast of {} bytes from rank {}: the limits are {} bytes and ranks 0..{}",
                              bytes.size(), root, limit, membership_.rank_count - 1));
  }
  const uint32_t number = ++calls_;
  Bytes sealed;
  if (root == membership_.rank) {
    TUTTI_ASSIGN(sealed, seal_->close(bytes, {number, root}));
  }
  const Header call = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBroadcast), .rank = root};
  TUTTI_ASSIGN(const Bytes got, exchange_(call, std::move(sealed), deadline));
  return seal_->open(got, {number, root});
}

}  // namespace tutti::bootstrap
