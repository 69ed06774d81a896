// SPDX-License-Identifier: Apache-2.0
#include "nccl/meeting.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "bootstrap/bootstrap.h"

namespace tutti::nccl {
namespace {

template <class T>
Result<std::vector<T>> gather_all(const Gather& gather, const T& mine) {
  TUTTI_ASSIGN(const auto bytes, gather(std::as_bytes(std::span(&mine, 1))));
  std::vector<T> all(bytes.size());
  for (size_t i = 0; i < all.size(); ++i) {
    if (bytes[i].size() != sizeof(T)) return Status(Code::kMismatch, "the ranks make different calls");
    std::memcpy(&all[i], bytes[i].data(), sizeof(T));
  }
  return all;
}

}  // namespace

Result<Seat> take_seat(const Gather& gather, size_t place, int color, int key, const Rendezvous& rendezvous) {
  struct Wish {
    int color;
    int key;
  };
  TUTTI_ASSIGN(const std::vector<Wish> wishes, gather_all(gather, Wish{color, key}));
  std::vector<std::pair<int, size_t>> group;  // key, place
  for (size_t other = 0; other < wishes.size(); ++other) {
    if (wishes[other].color == color) group.emplace_back(wishes[other].key, other);
  }
  std::sort(group.begin(), group.end());
  UniqueId id;
  Status made;
  if (color >= 0 && group.front().second == place) {
    const auto created = UniqueId::create(rendezvous.interfaces);
    made = created.status();
    if (created.ok()) id = *created;
  }
  TUTTI_ASSIGN(const std::vector<UniqueId> ids, gather_all(gather, id));
  TUTTI_TRY(made);
  if (color < 0) return Seat();
  const auto own = std::find(group.begin(), group.end(), std::pair(key, place));
  return Seat{ids[group.front().second], static_cast<int>(own - group.begin()), static_cast<int>(group.size())};
}

Status Doors::open(const Gather& gather, int rank, const Rendezvous& rendezvous) {
  rank_ = rank;
  TUTTI_ASSIGN(const UniqueId own, UniqueId::create(rendezvous.interfaces));
  const auto all = gather_all(gather, own);
  if (all.ok()) {
    doors_ = *all;
  } else {
    doors_.assign(static_cast<size_t>(rank) + 1, UniqueId());
  }
  doors_[static_cast<size_t>(rank)] = own;  // stored in each case, so that it is closed
  return all.status();
}

Status Doors::meet(std::span<const int> members, const Rendezvous& rendezvous,
                   const std::function<Status(const Gather&, size_t place)>& action) {
  const auto door_of = [&](int rank) -> UniqueId& { return doors_[static_cast<size_t>(rank)]; };
  const auto host = std::find_if(members.begin(), members.end(), [&](int rank) { return door_of(rank) != UniqueId(); });
  if (host == members.end()) {
    return {Code::kFailedPrecondition, "these ranks have tried to meet too often; make a communicator with a new id"};
  }
  const auto place = static_cast<size_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const base::Time deadline = base::time_in(rendezvous.limit);
  const UniqueId door = std::exchange(door_of(*host), UniqueId());
  TUTTI_ASSIGN(const auto meeting,
               bootstrap::Bootstrap::join(door, static_cast<int>(place), static_cast<int>(members.size()), deadline));
  const Gather gather = [&](std::span<const std::byte> mine) { return meeting->all_gather(mine, deadline); };
  TUTTI_TRY(action(gather, place));
  close();
  TUTTI_ASSIGN(const UniqueId own, UniqueId::create(rendezvous.interfaces));
  door_of(rank_) = own;
  TUTTI_ASSIGN(const std::vector<UniqueId> all, gather_all(gather, own));
  for (size_t i = 0; i < all.size(); ++i) door_of(members[i]) = all[i];
  return {};
}

/// An acceptor that no peer used stays open; a connection that comes and leaves closes it.
void Doors::close() {
  constexpr std::chrono::seconds kLimit{1};
  if (doors_.empty() || doors_[static_cast<size_t>(rank_)] == UniqueId()) return;
  const UniqueId own = std::exchange(doors_[static_cast<size_t>(rank_)], UniqueId());
  static_cast<void>(bootstrap::Bootstrap::join(own, 0, 1, base::time_in(kLimit)));
}

}  // namespace tutti::nccl
