// SPDX-License-Identifier: Apache-2.0
#include "transport/kept_tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "log/log.h"
#include "progress/bell.h"

namespace tutti::transport {
namespace {

constexpr uint32_t kTag = 0;  // a connection carries one stream of messages

/// Whether the failure means that this way to the peer is lost. `making`: the connection does not stand yet.
bool is_loss(const Status& failure, bool making) {
  const Code code = failure.code();
  return code == Code::kRemote || (making && (code == Code::kTimeout || code == Code::kSystem));
}

/// Its key with the devices of a route.
Key by(const Route& route, Key key) {
  key.device = route.device;
  key.peer_device = route.peer_device;
  return key;
}

Introduction introduction(Purpose purpose, const Failover& failover, const Net& home, uint32_t generation) {
  return {purpose, failover.index_of(home), generation};
}

void close(std::unique_ptr<Channel>& channel, const Route& route) {
  if (std::exchange(channel, nullptr) != nullptr) route.net->uncount_connection(route.device);
}

}  // namespace

KeptTask::KeptTask(const Net& home, const Key& key, Failover& failover, std::shared_ptr<Receipts> receipts,
                   tutti_bell* engine_bell, bool sends)
    : home_(home),
      key_(key),
      failover_(failover),
      routes_(failover.routes(home, key)),
      state_(home, key, sends),
      receipts_(std::move(receipts)),
      memory_(home.options().keys.protocols[key.protocol], key.peer, engine_bell, home.options().check_data, receipts_),
      haste_(std::in_place, failover) {}

KeptSendTask::KeptSendTask(const Net& home, const Key& key, Failover& failover, std::shared_ptr<Receipts> receipts,
                           tutti_bell* engine_bell)
    : KeptTask(home, key, failover, std::move(receipts), engine_bell, true),
      began_(Clock::now()),
      acknowledgements_(memory_.connection().slot_count),
      receives_(memory_.connection().slot_count) {}

KeptSendTask::~KeptSendTask() {
  drop();
}

bool KeptSendTask::idle() const {
  if (acknowledged_ == memory_.load_tail()) return true;
  return (breakage_.broken() || !home_.options().serves_left) && home_.standing(key_.peer).left;
}

/// Whether the peer needs no connection any more. A kernel of a rank that leaves may still wait for data.
bool KeptSendTask::is_over(bool undelivered) const {
  if (undelivered && home_.options().serves_left) return false;
  return Breakage::is_harmless(home_.standing(key_.peer), undelivered);
}

/// Acknowledgements may come later.
bool KeptSendTask::urgent() const {
  return requests_.completed() != memory_.load_tail() && !idle();
}

Result<bool> KeptSendTask::progress() {
  TUTTI_TRY(hear());
  const bool undelivered = acknowledged_ != memory_.load_tail();
  if (breakage_.broken()) {
    TUTTI_TRY(breakage_.verdict(home_, key_.peer, undelivered));
    return false;
  }
  if (ends_) return fail_over();
  // A peer that has left takes no connection.
  if (!lost_.empty() && is_over(undelivered)) return false;
  Result<bool> moved = advance();
  if (moved.ok() || !is_loss(moved.status(), channel_ == nullptr || !serves_)) return moved;
  give_up(moved.status());
  return true;
}

/// A look costs a system call in some networks. Messages of the peer mostly bring the acknowledgements before.
bool KeptSendTask::looks() {
  const uint64_t unacknowledged = requests_.posted() - acknowledged_;
  return !serves_ || !is_known_ || unacknowledged >= memory_.slots() * 3 / 4 || ++rounds_ % kRoundsPerLook == 0 ||
         !arrivals_.empty();
}

/// An event of the network may be an acknowledgement.
Result<bool> KeptSendTask::settle() {
  if (channel_ == nullptr || ends_) return false;
  Result<bool> taken = take_acknowledgements();
  if (taken.ok() || !is_loss(taken.status(), !serves_)) return taken;
  give_up(taken.status());
  return true;
}

Result<bool> KeptSendTask::advance() {
  if (channel_ == nullptr) return connect();
  bool acknowledged = false;
  if (looks()) {
    TUTTI_ASSIGN(acknowledged, take_acknowledgements());
  }
  if (waits_in_vain()) {
    renew();
    return true;
  }
  if (!serves_) {
    TUTTI_TRY(check_time());
    return acknowledged;
  }
  TUTTI_ASSIGN(const bool sent, post());
  return acknowledged || sent;
}

/// The receiver has never answered on this connection. Its rank may come late. Or the connection may be lost before the
/// receiver knew it: then the receiver cannot tell, and a sender that has filled its slots does not notice.
bool KeptSendTask::waits_in_vain() {
  if (is_known_) return false;
  if (acknowledged_ == memory_.load_tail()) began_ = Clock::now();
  return Clock::now() - began_ > failover_.limit() * (1 << std::min(renewals_, kMostDoublings));
}

/// Connects again by the same route. This is no fail-over.
void KeptSendTask::renew() {
  log::info("{}: rank {} has not answered; the connection is made again", describe(route(), key_), key_.peer);
  drop();
  state_.enter(LinkState::Phase::kAbsent);
  ++renewals_;
  begin_generation();
}

/// The first connection has the time that the network gives it.
Status KeptSendTask::check_time() const {
  if (generation_ == 0 || (channel_ != nullptr && !is_known_) || Clock::now() - began_ <= failover_.limit()) return {};
  return {Code::kTimeout,
          fmt::format("no connection within {:.3g} s", std::chrono::duration<double>(failover_.limit()).count())};
}

Result<bool> KeptSendTask::connect() {
  if (dial_ == nullptr) {
    dial_ = route().net->dial(by(route(), key_), introduction(Purpose::kData, failover_, home_, generation_));
  }
  TUTTI_ASSIGN(channel_, dial_->advance());
  if (channel_ == nullptr) {
    TUTTI_TRY(check_time());
    if (dial_->introduces()) state_.enter(LinkState::Phase::kIntroduces);
    return false;
  }
  dial_.reset();
  if (!is_known_) began_ = Clock::now();
  TUTTI_ASSIGN(registration_, channel_->register_memory({memory_.begin(), memory_.bytes()}));
  state_.go_by(route());
  log::debug("{}: connected", describe(route(), key_));
  if (serves_) state_.enter(LinkState::Phase::kStands);
  return true;
}

/// True when the connection of the acknowledgements has come.
Result<bool> KeptSendTask::join_acknowledgements() {
  while (auto taken = arrivals_.take()) {
    Arrival& arrival = *taken;
    const bool tells_loss = arrival.purpose == Purpose::kLoss && arrival.generation == generation_;
    // The receiver lives, and knows an earlier connection only: the next one must come while it waits (grace()).
    if (arrival.purpose == Purpose::kLoss && !is_known_) renewals_ = 0;
    if (arrival.generation != generation_ || acknowledges_ != nullptr || tells_loss) {
      close(arrival.channel, arrival.route);
      if (tells_loss) return Status(Code::kRemote, fmt::format("rank {} has lost the connection", key_.peer));
      continue;
    }
    acknowledges_ = std::move(arrival.channel);
    acknowledges_route_ = arrival.route;
    TUTTI_ASSIGN(
        acknowledges_registration_,
        acknowledges_->register_memory({acknowledgements_.data(), acknowledgements_.size() * sizeof(Acknowledgement)}));
    haste_.reset();
    if (!std::exchange(is_known_, true)) began_ = Clock::now();
  }
  return acknowledges_ != nullptr;
}

/// Acknowledgements that have come count even if the connection is lost by now.
Result<bool> KeptSendTask::take_acknowledgements() {
  TUTTI_ASSIGN(const bool joined, join_acknowledgements());
  if (!joined) return false;
  bool taken = false;
  for (void** request = &receives_[taken_ % receives_.size()]; *request != nullptr;
       request = &receives_[taken_ % receives_.size()]) {
    uint64_t bytes = 0;
    const Result<bool> done = acknowledges_->test(*request, &bytes);
    if (done.ok() && !*done) break;
    *request = nullptr;  // a request that fails is gone, too
    TUTTI_TRY(done.status());
    const Acknowledgement& acknowledgement = acknowledgements_[taken_++ % receives_.size()];
    if (bytes != sizeof acknowledgement) return Status(Code::kInternal, "an acknowledgement has a wrong length");
    TUTTI_TRY(take(acknowledgement));
    taken = true;
  }
  TUTTI_TRY(await_acknowledgements());
  return taken;
}

Status KeptSendTask::await_acknowledgements() {
  for (size_t i = 0; i < receives_.size(); ++i) {
    const size_t place = (taken_ + i) % receives_.size();
    if (receives_[place] != nullptr) continue;
    TUTTI_ASSIGN(receives_[place], acknowledges_->recv({&acknowledgements_[place], sizeof(Acknowledgement), kTag,
                                                        acknowledges_registration_}));
    if (receives_[place] == nullptr) break;
  }
  return {};
}

/// Acknowledgements that messages of the peer have carried.
Status KeptSendTask::hear() {
  const uint64_t heard = receipts_->heard();
  return heard <= acknowledged_ ? Status() : acknowledge({heard, generation_}, acknowledged_);
}

/// `least`: smaller numbers are not possible.
Status KeptSendTask::acknowledge(const Acknowledgement& acknowledgement, uint64_t least) {
  const uint64_t next = acknowledgement.next;
  if (acknowledgement.generation != generation_ || next < least || next > requests_.most_posted()) {
    return {Code::kInternal,
            fmt::format("rank {} acknowledges {} messages of generation {} on the connection {}, but {} to {} of "
                        "generation {} are possible; the network or its device is faulty",
                        key_.peer, next, acknowledgement.generation, home_.ends(key_, true), least,
                        requests_.most_posted(), generation_)};
  }
  if (next <= acknowledged_) return {};
  receipts_->confirm(next);
  acknowledged_ = next;
  return {};
}

/// While the connection serves, a message may have brought a later acknowledgement before.
Status KeptSendTask::take(const Acknowledgement& acknowledgement) {
  TUTTI_TRY(acknowledge(acknowledgement, serves_ ? stated_ : acknowledged_));
  const uint64_t next = stated_ = acknowledgement.next;
  if (serves_) return {};
  const uint64_t resent = requests_.posted() > next ? requests_.posted() - next : 0;
  requests_.restart(next);
  serves_ = true;
  state_.enter(LinkState::Phase::kStands);
  if (!lost_.empty()) failover_.report(key_, routes_[last_route_], route(), resent, lost_.front());
  last_route_ = route_;
  lost_.clear();
  return {};
}

/// A slot is free when its send is complete and acknowledged.
Result<bool> KeptSendTask::post() {
  TUTTI_ASSIGN(const bool sent, requests_.post_sends(*channel_, registration_));
  TUTTI_TRY(requests_.complete_sends(*channel_));
  const uint64_t free = std::min(requests_.completed(), acknowledged_);
  state_.count(requests_.posted(), free);
  if (free <= memory_.load_head()) return sent;
  memory_.store_head(free);
  progress::ring(*home_.options().bell);
  return true;
}

void KeptSendTask::give_up(const Status& why) {
  lost_.push_back(fmt::format("{}: {}", describe(route(), key_), why.text()));
  ends_ = true;
  lost_at_ = Clock::now();
}

/// The receiver may have acknowledged messages before it left, or before the connection broke. A rank that leaves
/// closes its connections, and this rank may hear a moment later that it left. So a sender without a message to deliver
/// waits for this news, unless the receiver asks for a connection.
Result<bool> KeptSendTask::fail_over() {
  if (is_over(acknowledged_ != memory_.load_tail())) return false;
  const bool may_wait = Clock::now() - lost_at_ < kLastTime;
  if (may_wait && serves_ && acknowledges_ != nullptr && acknowledged_ != requests_.most_posted()) {
    const Result<bool> taken = take_acknowledgements();
    if (taken.ok()) return taken;
    if (!is_loss(taken.status(), false)) return taken;
  }
  if (may_wait && acknowledged_ == memory_.load_tail() && arrivals_.empty()) return false;
  try_next();
  return true;
}

/// The route that broke is tried again after all others.
void KeptSendTask::try_next() {
  log::info("{}; the next route is tried", lost_.back());
  drop();
  ends_ = false;
  state_.enter(LinkState::Phase::kAbsent);
  if (lost_.size() > routes_.size()) {
    state_.enter(LinkState::Phase::kBroken);
    breakage_.begin(Status(Code::kRemote,
                           fmt::format("no network reaches rank {} any more: {}", key_.peer, fmt::join(lost_, "; "))));
    return;
  }
  route_ = (route_ + 1) % routes_.size();
  renewals_ = 0;
  begin_generation();
}

void KeptSendTask::begin_generation() {
  ++generation_;
  serves_ = false;
  began_ = Clock::now();
  haste_.emplace(failover_);
}

void KeptSendTask::drop() {
  dial_.reset();
  close(channel_, route());
  close(acknowledges_, acknowledges_route_);
  std::fill(receives_.begin(), receives_.end(), nullptr);
  taken_ = 0;
}

KeptReceiveTask::KeptReceiveTask(const Net& home, const Key& key, Failover& failover,
                                 std::shared_ptr<Receipts> receipts, tutti_bell* engine_bell)
    : KeptTask(home, key, failover, std::move(receipts), engine_bell, false) {}

KeptReceiveTask::~KeptReceiveTask() {
  drop();
}

/// Also a sender that has left waits for acknowledgements, as its hub may close before it hears that this rank leaves.
bool KeptReceiveTask::idle() const {
  return channel_ == nullptr || (receipts_->untold() == 0 && acknowledging_ == nullptr);
}

/// The news of the loss take one limit for each route, and so does the sender's way back.
std::chrono::nanoseconds KeptReceiveTask::grace() const {
  return failover_.limit() * (2 * static_cast<int64_t>(routes_.size()) + 1) + home_.options().break_grace;
}

Result<bool> KeptReceiveTask::progress() {
  TUTTI_ASSIGN(const bool arrived, take_arrivals());
  if (channel_ == nullptr) {
    if (!breakage_.broken()) return arrived;
    TUTTI_TRY(breakage_.verdict(home_, key_.peer, false, grace()));
    return call_sender() || arrived;
  }
  TUTTI_ASSIGN(const bool moved, or_lose(advance()));
  return moved || arrived;
}

Result<bool> KeptReceiveTask::settle() {
  return channel_ != nullptr && receipts_->untold() != 0 ? or_lose(acknowledge(true)) : false;
}

/// A failure that means a loss begins it, and is none.
Result<bool> KeptReceiveTask::or_lose(Result<bool> moved) {
  if (moved.ok() || !is_loss(moved.status(), acknowledges_ == nullptr)) return moved;
  lose(moved.status());
  return true;
}

/// Tells the sender of the loss by one route after another. A route that does not serve is passed over.
bool KeptReceiveTask::call_sender() {
  if (Breakage::is_harmless(home_.standing(key_.peer), false)) return false;
  const Route& route = routes_[calls_ % routes_.size()];
  if (call_ == nullptr) {
    called_at_ = Clock::now();
    call_ = route.net->dial(by(route, key_),
                            introduction(Purpose::kLoss, failover_, home_, static_cast<uint32_t>(generation_)));
  }
  auto told = call_->advance();
  const bool ends = !told.ok() || *told != nullptr || Clock::now() - called_at_ > failover_.limit();
  if (!ends) return false;
  call_.reset();
  if (told.ok()) close(*told, route);
  ++calls_;
  return true;
}

Result<bool> KeptReceiveTask::take_arrivals() {
  bool begun = false;
  while (auto taken = arrivals_.take()) {
    Arrival& arrival = *taken;
    if (int64_t{arrival.generation} <= generation_) {
      close(arrival.channel, arrival.route);
      continue;
    }
    TUTTI_TRY(begin(std::move(arrival)));
    begun = true;
  }
  return begun;
}

/// Messages of earlier generations that are not taken yet come again.
Status KeptReceiveTask::begin(Arrival arrival) {
  drop();
  route_ = arrival.route;
  generation_ = arrival.generation;
  channel_ = std::move(arrival.channel);
  channel_->set_ends(route_.net->ends(by(route_, key_), false));
  TUTTI_ASSIGN(registration_, channel_->register_memory({memory_.begin(), memory_.bytes()}));
  haste_.reset();
  requests_.restart(requests_.completed());
  dial_ = route_.net->dial(by(route_, key_),
                           introduction(Purpose::kAcknowledgements, failover_, home_, arrival.generation));
  state_.go_by(route_);
  state_.enter(LinkState::Phase::kStands);
  return {};
}

Result<bool> KeptReceiveTask::advance() {
  TUTTI_ASSIGN(const bool connected, connect_back());
  const uint64_t before = requests_.completed();
  TUTTI_TRY(requests_.take_arrived(*channel_, *home_.options().bell));
  TUTTI_ASSIGN(const bool posted, requests_.post_receives(*channel_, registration_));
  state_.count(requests_.posted(), requests_.completed());
  waits_ = requests_.completed() != before ? 0 : waits_ + 1;
  TUTTI_ASSIGN(const bool acknowledged, acknowledge(false));
  return connected || requests_.completed() != before || posted || acknowledged;
}

Result<bool> KeptReceiveTask::connect_back() {
  if (dial_ == nullptr) return false;
  TUTTI_ASSIGN(acknowledges_, dial_->advance());
  if (acknowledges_ == nullptr) return false;
  dial_.reset();
  breakage_ = {};
  TUTTI_ASSIGN(acknowledges_registration_,
               acknowledges_->register_memory({&acknowledgement_, sizeof acknowledgement_}));
  return true;
}

/// A new connection begins with an acknowledgement. `settles`: the thread is about to sleep. A message that carries an
/// acknowledgement may be stuck, since the peer may take no message before it has sent one.
bool KeptReceiveTask::is_due(bool settles) const {
  const uint64_t slots = memory_.slots();
  const uint64_t untold = receipts_->untold();
  const uint32_t patience = untold >= slots / 2 ? kShortPatience : kPatience;
  return !introduced_ || receipts_->unstated() >= slots - slots / 4 || (untold > 0 && (settles || waits_ >= patience));
}

/// One acknowledgement at a time is on its way, and states all messages until then.
Result<bool> KeptReceiveTask::acknowledge(bool settles) {
  if (acknowledges_ == nullptr) return false;
  if (acknowledging_ != nullptr) {
    TUTTI_ASSIGN(const bool done, acknowledges_->test(acknowledging_, nullptr));
    if (!done) return false;
    acknowledging_ = nullptr;
  }
  if (!is_due(settles)) return false;
  acknowledgement_ = {receipts_->taken(), static_cast<uint64_t>(generation_)};
  TUTTI_ASSIGN(acknowledging_,
               acknowledges_->send({&acknowledgement_, sizeof acknowledgement_, kTag, acknowledges_registration_}));
  if (acknowledging_ == nullptr) return false;
  introduced_ = true;
  receipts_->tell();
  return true;
}

/// The grace counts from the first loss on, until the connection serves in both directions again.
void KeptReceiveTask::lose(const Status& why) {
  log::debug("{}", why.text());
  const double limit = std::chrono::duration<double>(grace()).count();
  if (!breakage_.broken()) {
    breakage_.begin(Status(
        why.code(), fmt::format("{}; rank {} has not connected again within {:.3g} s", why.text(), key_.peer, limit)));
  }
  drop();
  calls_ = 1;  // the route that broke is the last
  state_.enter(LinkState::Phase::kBroken);
  haste_.emplace(failover_);
}

void KeptReceiveTask::drop() {
  dial_.reset();
  call_.reset();
  close(acknowledges_, route_);
  acknowledging_ = nullptr;
  introduced_ = false;
  close(channel_, route_);
}

}  // namespace tutti::transport
