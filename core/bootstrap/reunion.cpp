// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/reunion.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bootstrap/endpoint.h"
#include "bootstrap/exchange.h"
#include "bootstrap/hub.h"
#include "bootstrap/interface.h"

namespace tutti::bootstrap {
namespace {

/// The limits of ranks that come are in force first: their texts state them.
constexpr base::Milliseconds kGraceOfHub{1000};

}  // namespace

Result<std::unique_ptr<Reunion>> Reunion::open(int rank, const std::string& interfaces) {
  TUTTI_ASSIGN(auto poller, Poller::shared());
  std::unique_ptr<Reunion> opened(new Reunion(rank, interfaces, std::move(poller)));
  TUTTI_TRY(opened->open_place());
  return opened;
}

Reunion::Reunion(int rank, std::string interfaces, std::shared_ptr<Poller> poller)
    : rank_(rank), interfaces_(std::move(interfaces)), poller_(std::move(poller)) {}

Reunion::~Reunion() {
  release(hub_);
}

Status Reunion::open_place() {
  TUTTI_ASSIGN(const Interface chosen, choose_interface(interfaces_));
  TUTTI_ASSIGN(const Secret secret, random_secret());
  TUTTI_ASSIGN(const base::SocketAddress served, Hub::serve_in_reserve(*poller_, chosen.address, secret, hub_));
  place_ = to_unique_id({served, secret});
  return {};
}

void Reunion::release(const std::weak_ptr<Hub>& unused) {
  poller_->run([&] {
    if (const auto hub = unused.lock()) poller_->release(hub.get());
  });
}

Result<std::unique_ptr<Bootstrap>> Reunion::meet(std::span<const int> members, base::Time deadline,
                                                 base::Milliseconds peer_loss) {
  const auto host =
      std::find_if(members.begin(), members.end(), [&](int rank) { return place_of(rank) != UniqueId(); });
  if (host == members.end()) {
    return Status(Code::kFailedPrecondition,
                  "these ranks have tried to meet too often; make a communicator with a new unique id");
  }
  if (*host == rank_) {
    poller_->run([this, deadline] {
      if (const auto hub = std::exchange(hub_, {}).lock()) hub->expect_ranks(base::left_until(deadline) + kGraceOfHub);
    });
  }
  const auto position = std::find(members.begin(), members.end(), rank_) - members.begin();
  const UniqueId place = std::exchange(place_of(*host), UniqueId());
  auto joined = Bootstrap::join(place, static_cast<int>(position), static_cast<int>(members.size()), deadline,
                                peer_loss, {interfaces_, {}});
  if (!joined.ok()) return joined.status().with_context(fmt::format("at the place of rank {}", *host));
  return joined;
}

Status Reunion::renew(Bootstrap& meeting, std::span<const int> members, base::Time deadline) {
  // The earlier place stays until all members know the new one: the members may meet there if this call fails.
  std::weak_ptr<Hub> unused = std::exchange(hub_, {});
  const UniqueId earlier = place_;
  Status status = open_place();
  if (status.ok()) {
    const auto places = exchange(meeting, place_, deadline);
    status = places.status();
    for (size_t i = 0; places.ok() && i < members.size(); ++i) place_of(members[i]) = (*places)[i];
  }
  if (!status.ok()) {
    std::swap(hub_, unused);
    place_ = earlier;
  }
  release(unused);
  return status;
}

}  // namespace tutti::bootstrap
