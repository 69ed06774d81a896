// SPDX-License-Identifier: Apache-2.0
// A rank joins the hubs and the result tree.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bootstrap/client.h"
#include "bootstrap/interface.h"
#include "bootstrap/knock.h"
#include "bootstrap/process.h"
#include "log/log.h"

namespace tutti::bootstrap {
namespace {

Status no_hub(const Status& why, const base::SocketAddress& hub, int rank, int rank_count) {
  std::string remedy;
  if (why.code() == Code::kTimeout) {
    remedy = "; check that rank 0, or the process that made the id, has started and has not ended";
    if (hub.is_loopback())
      remedy += fmt::format(
          ". Each host has a loopback ({}) of its own: if the ranks run on several hosts, choose an address of rank "
          "0's host that all hosts reach, by MASTER_ADDR, TUTTI_MEETING or bootstrap.interface",
          hub.ip_text());
  }
  return {why.code(), fmt::format("rank {} of {} cannot reach the hub: {}{}", rank, rank_count, why.text(), remedy)};
}

/// The announcement of a rank that takes connections, or that says why it takes none.
Bytes announcement_of(const Result<base::SocketAddress>& served) {
  return served.ok() ? pack(std::array{to_bytes(served->to_string())})
                     : pack(std::array{Bytes(), to_bytes(served.status().text())});
}

/// The address in the announcement of a rank that takes connections; kRemote with the reason if it takes none.
Result<base::SocketAddress> told_address(const Bytes& announced) {
  TUTTI_ASSIGN(const std::vector<Bytes> parts, unpack(announced));
  if (parts.size() != 1)
    return Status(Code::kRemote, "it did not start" + (parts.size() == 2 ? ": " + to_text(parts[1]) : ""));
  return base::SocketAddress::parse(to_text(parts[0]));
}

}  // namespace

Status Bootstrap::Client::join(const Endpoint& endpoint, base::Time deadline) {
  const auto ask_hub = [this](const Header& call, Bytes bytes, base::Time limit) {
    return exchange(call, std::move(bytes), limit);
  };
  TUTTI_ASSIGN(calls_, SealedCalls::create(endpoint.secret, {rank(), size()}, ask_hub));
  uint32_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = open_exchange();
  }
  auto knocked = knock(endpoint, {.id = id}, hello(), deadline);
  if (!knocked.ok()) return no_hub(knocked.status(), endpoint.address, rank(), size());
  base::Fd socket = *std::move(knocked);
  const base::SocketAddress here = base::local_address(socket);
  connect(kPrimary, endpoint.address, std::move(socket));
  std::unique_lock lock(mutex_);
  TUTTI_ASSIGN(const Bytes reply, wait_for_answer(lock, {.id = id}, deadline));
  lock.unlock();
  TUTTI_ASSIGN(const Lineup lineup, decode_lineup(reply, size()));
  poller_->run([&] {
    hubs_[kPrimary].process = lineup.primary;
    hubs_[kStandby].process = lineup.standby;
  });
  lock.lock();
  joined_ = true;
  lock.unlock();
  join_tree(endpoint.secret, lineup.branch, here, deadline);
  return lineup.standby_rank() < 0 ? Status() : join_standby(endpoint, lineup, here, deadline);
}

Hello Bootstrap::Client::hello() const {
  const std::string& host = options_.site.host;
  return hello_of(options_.rank, options_.rank_count, options_.peer_loss, host.empty() ? host_name() : host);
}

void Bootstrap::Client::connect(int index, const base::SocketAddress& address, base::Fd socket) {
  base::set_connection_options(socket, options_.peer_loss);
  poller_->run([&] {
    HubEnd& hub = hubs_.at(static_cast<size_t>(index));
    hub.address = address.to_string();
    hub.in_use = index == kPrimary;
    {
      const std::lock_guard lock(mutex_);
      ++connections_;
    }
    hub.link = Link::open(*poller_, std::move(socket), kMaxPayloadBytes,
                          {.received = [this, &hub](Frame frame) { receive(hub, std::move(frame)); },
                           .closed = [this, &hub](const Loss& loss) { lose(hub, loss); }});
  });
}

Result<base::SocketAddress> Bootstrap::Client::own_address(const base::SocketAddress& primary_sees) const {
  base::SocketAddress address = primary_sees;
  if (!options_.site.interfaces.empty()) {
    TUTTI_ASSIGN(const Interface chosen, choose_interface(options_.site.interfaces));
    address = chosen.address;
  }
  address.set_port(0);
  return address;
}

Status Bootstrap::Client::join_standby(const Endpoint& primary, const Lineup& lineup, const base::SocketAddress& here,
                                       base::Time deadline) {
  std::weak_ptr<Hub> own;
  Bytes announcement;
  if (lineup.standby_rank() == rank()) announcement = announcement_of(start_standby(primary.secret, lineup, here, own));
  const Header broadcast = {
      .kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBroadcast), .rank = lineup.standby_rank()};
  auto announced = exchange(broadcast, std::move(announcement), deadline);
  const Status reached = announced.ok() ? reach_standby(primary.secret, *announced, deadline) : announced.status();
  const Header gather = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kAllGather)};
  auto all = announced.ok() ? exchange(gather, to_bytes(reached.text()), deadline) : announced;
  Result<bool> complete = all.ok() ? all_reached(*all, lineup) : Result<bool>(all.status());
  const bool use = complete.ok() && *complete;
  poller_->run([&] {
    if (use) return hubs_[kStandby].use();
    drop_standby(own);
    branch_->detach({});  // a result must not come later than the news that the only hub closes
  });
  return complete.status();
}

Result<base::SocketAddress> Bootstrap::Client::start_standby(const Secret& secret, const Lineup& lineup,
                                                             const base::SocketAddress& here,
                                                             std::weak_ptr<Hub>& made) {
  TUTTI_ASSIGN(const base::SocketAddress address, own_address(here));
  return Hub::serve_standby(*poller_, address, secret, lineup, size(), made);
}

Status Bootstrap::Client::reach_standby(const Secret& secret, const Bytes& announced, base::Time deadline) {
  TUTTI_ASSIGN(const base::SocketAddress address, told_address(announced));
  const base::Time limit = std::min(deadline, base::time_in(options_.peer_loss));
  TUTTI_ASSIGN(base::Fd socket, knock({address, secret}, {}, hello(), limit));
  connect(kStandby, address, std::move(socket));
  return {};
}

Result<bool> Bootstrap::Client::all_reached(const Bytes& packed, const Lineup& lineup) {
  TUTTI_ASSIGN(const std::vector<Bytes> reports, unpack(packed));
  const auto failed = std::find_if(reports.begin(), reports.end(), [](const Bytes& text) { return !text.empty(); });
  if (failed == reports.end()) return true;
  if (rank() == 0) {
    const std::lock_guard lock(mutex_);
    warning_ = fmt::format(
        "bootstrap: rank {} cannot reach a standby hub in the process of {}: {}. All go on without it: if the "
        "process of the hub ({}) ends, no rank learns who is lost",
        failed - reports.begin(), to_text(lineup.standby), to_text(*failed), to_text(lineup.primary));
  }
  return false;
}

void Bootstrap::Client::drop_standby(const std::weak_ptr<Hub>& own) {
  HubEnd& hub = hubs_[kStandby];
  if (hub.link) hub.link->send({.kind = Kind::kLeave}, Bytes());
  if (const auto mine = own.lock()) poller_->release(mine.get());
}

void Bootstrap::Client::join_tree(const Secret& group, const BranchRole& role, const base::SocketAddress& here,
                                  base::Time deadline) {
  poller_->run([&] {
    branch_ = std::make_shared<Branch>(*poller_, Branch::Options{role, rank(), size(), options_.peer_loss},
                                       Branch::Events{[this](Frame frame) { take_result(std::move(frame)); },
                                                      [this](const std::string& why) { detached(why); }});
  });
  if (!role.children.empty())
    tell_primary({.kind = Kind::kBranch}, announcement_of(take_children(group, here, deadline)));
  if (role.parent < 0) return;
  // A part of the time, so that a rank without its parent still joins.
  const base::Milliseconds limit = std::min(options_.peer_loss, base::left_until(deadline) / 4);
  const Status reached = reach_parent(group, role.parent, base::time_in(limit));
  if (!reached.ok() && !failure()) tell_primary({.kind = Kind::kDetach}, to_bytes(reached.text()));
}

Result<base::SocketAddress> Bootstrap::Client::take_children(const Secret& group, const base::SocketAddress& here,
                                                             base::Time deadline) {
  TUTTI_ASSIGN(const Secret secret, Branch::secret_of(group, rank()));
  TUTTI_ASSIGN(const base::SocketAddress address, own_address(here));
  return Acceptor::serve(*poller_, address, [&](std::shared_ptr<Acceptor> acceptor) {
    return branch_->open(std::move(acceptor), secret, deadline);
  });
}

Status Bootstrap::Client::reach_parent(const Secret& group, int parent, base::Time deadline) {
  const auto told = exchange({.kind = Kind::kParent}, {}, deadline);
  if (told.status().code() == Code::kTimeout)
    return Status(Code::kTimeout, "it has not said where it takes connections");
  TUTTI_TRY(told.status());
  TUTTI_ASSIGN(const base::SocketAddress address, told_address(*told));
  TUTTI_ASSIGN(const Secret secret, Branch::secret_of(group, parent));
  bool here = false;
  poller_->run([&] {
    here = branch_->attach_here(secret);
    if (here) tell_primary({.kind = Kind::kAttach}, {});
  });
  if (here) return {};
  TUTTI_ASSIGN(base::Fd socket, knock({address, secret}, {}, hello(), deadline));
  poller_->run([&] {
    branch_->attach(std::move(socket));
    tell_primary({.kind = Kind::kAttach}, {});  // before the branch can detach
  });
  return {};
}

}  // namespace tutti::bootstrap
