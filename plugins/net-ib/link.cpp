// SPDX-License-Identifier: Apache-2.0
#include "link.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <utility>

#include "address.h"
#include "failure.h"
#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

constexpr uint32_t kPollsBetweenChecks = 4096;
constexpr int kAtOnce = 16;     // completions
constexpr int kProbeShare = 4;  // probes in the time that a peer may be silent

std::string place(const Endpoint& endpoint) {
  Ip ip;
  ip.bytes = endpoint.gid;
  return fmt::format("{} ({})", ip.to_string(), endpoint.device.data());
}

}  // namespace

Result<std::unique_ptr<Link>> Link::create(const Shared& shared, const std::vector<Port>& ports) {
  std::unique_ptr<Link> link(new Link(shared));
  link->mailbox_ = std::make_unique<RdmaMailbox>();
  for (const Port& port : ports) {
    if (port.device == nullptr) return Status(Code::kInternal, "the device of a port is not open");
    TUTTI_ASSIGN(std::unique_ptr<Rail> rail,
                 Rail::create(shared.settings, *shared.events, port, shared.settings.queue_pairs, *link->mailbox_));
    link->rails_.push_back(std::move(rail));
  }
  return link;
}

Endpoints Link::endpoints() const {
  Endpoints out;
  for (size_t i = 0; i < rails_.size(); ++i)
    if (rails_[i]->state() == Rail::State::kLive) out[i] = rails_[i]->own();
  return out;
}

Status Link::connect(const Endpoints& peer, bool sends) {
  Endpoint there = peer.front();
  there.device.back() = '\0';
  const Endpoint& here = rails_.front()->own();
  ends_ = fmt::format("the connection from {} to {}", place(sends ? here : there), place(sends ? there : here));
  for (uint32_t i = 0; i < rails_.size(); ++i) {
    const Status connected = peer[i].count == 0 && i > 0 ? Status(Code::kRemote, "the other end has no such rail")
                                                         : rails_[i]->connect(shared_.settings, peer[i]);
    if (connected.ok()) continue;
    if (i == 0) return connected.with_context(ends_);
    shared_.host.log(TUTTI_LOG_WARN,
                     fmt::format("{} does not use {}: {}", ends_, rails_[i]->port().name, connected.text()));
    leave_out(*rails_[i], connected);
  }
  return {};
}

void Link::leave_out(Rail& rail, const Status& why) {
  rail.close(why);
  rail.set_lost();
  rail.told = rail.heard = true;
}

uint8_t Link::connected() const {
  unsigned bits = 0;
  for (size_t i = 0; i < rails_.size(); ++i) {
    if (rails_[i]->state() == Rail::State::kLive) bits |= 1u << i;
  }
  return static_cast<uint8_t>(bits);
}

Status Link::keep_rails(uint8_t bits) {
  if ((bits & 1u) == 0 || bits >> rails_.size() != 0)
    return {Code::kMismatch, fmt::format("{} uses impossible rails ({:#x})", ends_, bits)};
  for (size_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = *rails_[i];
    if ((bits >> i & 1u) == 0 && rail.state() == Rail::State::kLive)
      leave_out(rail, {Code::kRemote, "the other end cannot use it"});
  }
  return {};
}

Link::~Link() {
  shared_.events->forget(exchange_);
  if (exchange_.valid()) ::shutdown(exchange_.get(), SHUT_RDWR);  // a forked child may have a copy
}

void Link::start(User& user) {
  user_ = &user;
  renew_queue_pairs();
  watch_silence(exchange_, shared_.settings.peer_loss);
  if (const Status watched = shared_.events->watch(exchange_.get(), stir_); !watched.ok()) fail(watched);
}

/// The first queue pairs belong to different rails, so that messages of few parts use all rails.
void Link::renew_queue_pairs() {
  queue_pairs_.clear();
  for (uint32_t pair = 0; pair < kMaxQueuePairs; ++pair) {
    for (uint32_t i = 0; i < rails_.size(); ++i) {
      if (rails_[i]->state() == Rail::State::kLive && pair < rails_[i]->queue_pairs())
        queue_pairs_.push_back({i, pair});
    }
  }
}

bool Link::has_room() const {
  return closing_ == 0 && std::all_of(queue_pairs_.begin(), queue_pairs_.end(), [&](const QueuePairRef& queue_pair) {
           return rails_[queue_pair.rail]->has_room(queue_pair.index);
         });
}

Status Link::write(const QueuePairRef& queue_pair, Work work, uint32_t value, const Local& from, uint64_t address,
                   uint32_t key, uint32_t immediate) {
  return rails_[queue_pair.rail]->post_write(queue_pair.index, work_number(work, value), from, address, key, immediate);
}

Status Link::write_mailbox(const QueuePairRef& queue_pair, Work work, uint32_t value, uint64_t from, uint32_t bytes,
                           uint64_t to, uint32_t immediate) {
  const Rail& rail = *rails_[queue_pair.rail];
  const Local local{reinterpret_cast<uint64_t>(mailbox_.get()) + from, bytes, rail.mailbox_key()};
  return write(queue_pair, work, value, local, rail.peer().mailbox + to, rail.peer().mailbox_key, immediate);
}

void Link::poll() {
  Status end;
  while (failure_.ok()) {
    bool more = false;
    for (uint32_t i = 0; i < rails_.size() && failure_.ok(); ++i) more = poll(i) || more;
    if (rails_.size() > 1) check_ports();
    if (!failure_.ok()) return;
    if (more) continue;
    if (unsettled_) {
      if (const Status settled = settle(); !settled.ok()) return fail(settled);
    }
    if (!end.ok()) return fail(end);
    // Data that arrived before the end of the peer still count: their completions are there by now, and are read first.
    end = check_peer();
    if (end.ok()) return;
  }
}

/// True: there may be more completions.
bool Link::poll(uint32_t index) {
  std::array<ibv_wc, kAtOnce> completions;
  const int count = ibv_poll_cq(rails_[index]->queue(), kAtOnce, completions.data());
  if (count < 0) fail(Status(Code::kDevice, "cannot read a completion queue; see the kernel log"));
  for (int i = 0; i < count && failure_.ok(); ++i) {
    const ibv_wc& completion = completions[static_cast<size_t>(i)];
    if (const Status taken = take(index, completion); !taken.ok()) fail(taken);
  }
  if (count > 0) empty_polls_ = 0;
  return count == kAtOnce;
}

Status Link::take(uint32_t index, const ibv_wc& completion) {
  Rail& rail = *rails_[index];
  const Work work = work_of(completion.wr_id);
  uint32_t pair = 0;
  if (work != Work::kFlush) {
    TUTTI_ASSIGN(pair, rail.count(completion));
  }
  if (completion.status != IBV_WC_SUCCESS) {
    take_error(index, completion);
    return {};
  }
  if (work != Work::kReceive) {
    user_->complete(work, value_of(completion.wr_id));
    return {};
  }
  if (rail.state() == Rail::State::kLive) TUTTI_TRY(rail.replenish(pair));
  const uint32_t immediate = ntohl(completion.imm_data);
  if ((immediate & Immediate::kTooLong) == 0 && (immediate & Immediate::kControl) != 0)
    return take_control(index, immediate);
  return user_->take(immediate, completion.byte_len);
}

void Link::take_error(uint32_t index, const ibv_wc& completion) {
  const Work work = work_of(completion.wr_id);
  const uint32_t value = value_of(completion.wr_id);
  if (work == Work::kControl && value < rails_.size()) {
    rails_[value]->told = false;  // the message is sent again over another rail
    unsettled_ = true;
  } else if (work != Work::kReceive) {
    user_->abandon(index, work, value);
  }
  if (rails_[index]->state() != Rail::State::kLive && work != Work::kFlush) return;
  const Port& port = rails_[index]->port();
  port.device->read_events(shared_.host);
  const Status why = failure_of(completion, port, rails_[index]->peer().device.data(), shared_.settings);
  if (concerns_rail(completion.status) && work != Work::kFlush) {
    lose(index, why);
  } else {
    fail(why);
  }
}

Status Link::check_peer() {
  if (!exchange_.valid() && Clock::now() >= next_probe_) TUTTI_TRY(probe());
  if (!stir_.take() && ++empty_polls_ < kPollsBetweenChecks) return {};
  empty_polls_ = 0;
  for (const auto& rail : rails_) {
    if (rails_.size() > 1) rail->port().device->read_events(shared_.host);
    if (rail->state() == Rail::State::kLive && rail->port().device->has_failed() && live_rails() == 1)
      return {Code::kDevice, fmt::format("{} has failed; see the kernel log, and reset it", rail->port().name)};
  }
  return exchange_.valid() ? check_exchange() : Status();
}

uint32_t Link::live_rails() const {
  return static_cast<uint32_t>(std::popcount(connected()));
}

/// The last rail is not given up for its port alone: if the port comes up again in time, nothing breaks.
void Link::check_ports() {
  for (uint32_t i = 0; i < rails_.size(); ++i) {
    const Rail& rail = *rails_[i];
    if (rail.state() != Rail::State::kLive || !rail.is_down() || live_rails() == 1) continue;
    const std::string fault = rail.port().device->fault_of(rail.port().number);
    lose(i,
         Status(Code::kRemote,
                fault.empty() ? fmt::format("port {} of {} was down", rail.port().number, rail.port().name) : fault));
  }
}

Status Link::check_exchange() {
  char byte = 0;
  const ssize_t got = ::recv(exchange_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return {};
  if (got == 0)
    return {Code::kRemote, "the process at the other end closed it; it has left or died: see the log of that rank"};
  const int error = errno;
  if (rails_.size() == 1) return end_of_exchange(error, shared_.settings);
  // The network of the exchange is often that of the first rail. The other rails may still reach the peer. A reset is
  // no news of the peer's end, which closes the connection: the peer may have given the connection up after a cut.
  shared_.host.log(TUTTI_LOG_WARN, fmt::format("{}: the TCP connection beside it is lost ({}); probes over RDMA tell "
                                               "from now on whether the other end lives",
                                               ends_, errno_text(error)));
  shared_.events->forget(exchange_);
  exchange_.reset();
  return {};
}

/// A peer that does not acknowledge a probe is lost on this rail, and then on the next.
Status Link::probe() {
  next_probe_ = Clock::now() + shared_.settings.peer_loss / kProbeShare;
  if (queue_pairs_.empty() || !rails_[queue_pairs_.front().rail]->has_room(queue_pairs_.front().index)) return {};
  return write(queue_pairs_.front(), Work::kControl, kMaxRails, {}, 0, 0, Immediate::kProbe);
}

void Link::fail(const Status& why) {
  if (failure_.ok()) failure_ = why.with_context(ends_);
}

}  // namespace tutti::net_ib
