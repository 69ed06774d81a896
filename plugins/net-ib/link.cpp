// SPDX-License-Identifier: Apache-2.0
#include "link.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "failure.h"
#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

constexpr uint32_t kPollsBetweenChecks = 4096;
constexpr uint32_t kReceiveBatch = 16;
constexpr uint32_t kPsnMask = 0xffffff;

uint32_t random_psn() {
  uint32_t psn = 0;
  if (::getrandom(&psn, sizeof psn, 0) != static_cast<ssize_t>(sizeof psn)) return 0;  // any number is right
  return psn & kPsnMask;
}

std::string place(const Endpoint& endpoint) {
  Ip ip;
  ip.bytes = endpoint.gid;
  return fmt::format("{} ({})", ip.to_string(), endpoint.device.data());
}

}  // namespace

Result<std::unique_ptr<Link>> Link::create(const Shared& shared, const Port& port, uint32_t queue_pairs) {
  std::unique_ptr<Link> link(new Link(shared, port));
  TUTTI_ASSIGN(link->queue_, shared.events->make_queue(*port.device, queue_pairs * (kSends + kReceives) + kSends));
  TUTTI_TRY(link->make_board());
  TUTTI_TRY(link->make_pairs(queue_pairs));
  return link;
}

Link::~Link() {
  pairs_.clear();
  if (board_registration_ != nullptr) port_.device->registrations().remove(board_registration_);
}

Status Link::make_board() {
  board_ = std::make_unique<Board>();
  TUTTI_ASSIGN(board_registration_, port_.device->registrations().add(board_.get(), sizeof(Board), TUTTI_MEMORY_HOST,
                                                                      shared_.settings.relaxed_ordering));
  return {};
}

Status Link::make_pairs(uint32_t count) {
  own_.count = count;
  own_.psn = random_psn();
  own_.gid = port_.gid.ip.bytes;
  own_.gid_type = port_.gid.type;
  own_.lid = port_.attributes.lid;
  own_.mtu = static_cast<uint8_t>(port_.attributes.active_mtu);
  own_.link_layer = port_.attributes.link_layer;
  own_.board = reinterpret_cast<uint64_t>(board_.get());
  own_.board_key = board_registration_->region->rkey;
  std::copy_n(port_.name.begin(), std::min(port_.name.size(), own_.device.size() - 1), own_.device.begin());
  for (uint32_t i = 0; i < count; ++i) {
    TUTTI_ASSIGN(QueuePair pair, QueuePair::create(port_, shared_.settings, queue(), {kSends, kReceives}));
    own_.queue_pairs[i] = pair.number();
    TUTTI_TRY(pair.post_receives(kReceives));
    pairs_.push_back(std::move(pair));
  }
  used_receives_.assign(count, 0);
  return {};
}

Status Link::connect(const Endpoint& peer, bool sends) {
  peer_ = peer;
  peer_.device.back() = '\0';
  ends_ = fmt::format("the connection from {} to {}", place(sends ? own_ : peer_), place(sends ? peer_ : own_));
  if (peer_.count == 0 || peer_.count > kMaxQueuePairs)
    return {Code::kMismatch, fmt::format("{} has {} queue pairs at the other end", ends_, peer_.count)};
  if (peer_.link_layer != own_.link_layer || peer_.gid_type != own_.gid_type) {
    return {Code::kMismatch, fmt::format("{} joins ports of different kinds (InfiniBand, RoCE v1, RoCE v2); set "
                                         "settings.net.ib.devices or settings.net.ib.roce alike on all hosts",
                                         ends_)};
  }
  while (pairs_.size() > peer_.count) pairs_.pop_back();
  for (size_t i = 0; i < pairs_.size(); ++i)
    TUTTI_TRY(pairs_[i].connect(port_, shared_.settings, peer_, peer_.queue_pairs[i], own_.psn));
  return {};
}

void Link::keep(Fd exchange) {
  exchange_ = std::move(exchange);
  watch_silence(exchange_, shared_.settings.peer_loss);
  if (const Status watched = shared_.events->watch(exchange_.get(), stir_); !watched.ok()) fail(watched);
}

Status Link::replenish(uint32_t number) {
  for (size_t i = 0; i < pairs_.size(); ++i) {
    if (pairs_[i].number() != number) continue;
    if (++used_receives_[i] < kReceiveBatch) return {};
    return pairs_[i].post_receives(std::exchange(used_receives_[i], 0));
  }
  return {Code::kInternal, fmt::format("a completion of a queue pair {} that is not of {}", number, ends_)};
}

Status Link::check_peer() {
  if (!stir_.take() && ++empty_polls_ < kPollsBetweenChecks) return {};
  empty_polls_ = 0;
  if (port_.device->has_failed()) return {Code::kDevice, "the device has failed; see the kernel log, and reset it"};
  char byte = 0;
  const ssize_t got = ::recv(exchange_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return {};
  if (got == 0) return {Code::kRemote, "the process at the other end closed it"};
  return end_of_exchange(errno, shared_.settings);
}

void Link::fail(const Status& why) {
  if (failure_.ok()) failure_ = why.with_context(ends_);
}

void Link::fail(const ibv_wc& completion) {
  port_.device->read_events(shared_.host);
  fail(failure_of(completion, port_, peer_.device.data(), shared_.settings));
}

}  // namespace tutti::net_ib
