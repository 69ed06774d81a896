// SPDX-License-Identifier: Apache-2.0
#include "rail.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "handshake.h"
#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

constexpr uint32_t kReceiveBatch = 16;
constexpr uint32_t kPsnMask = 0xffffff;

uint32_t random_psn() {
  uint32_t psn = 0;
  if (::getrandom(&psn, sizeof psn, 0) != static_cast<ssize_t>(sizeof psn)) return 0;  // any number is right
  return psn & kPsnMask;
}

}  // namespace

Result<std::unique_ptr<Rail>> Rail::create(const Settings& settings, Events& events, const Port& port,
                                           uint32_t queue_pairs, RdmaMailbox& mailbox) {
  std::unique_ptr<Rail> rail(new Rail(port));
  TUTTI_ASSIGN(rail->queue_, events.make_queue(*port.device, queue_pairs * (kSends + kReceives) + kSends));
  TUTTI_ASSIGN(rail->mailbox_, port.device->registrations().add(&mailbox, sizeof mailbox, TUTTI_MEMORY_HOST,
                                                                settings.relaxed_ordering));
  rail->downs_ = port.device->downs(port.number);
  rail->own_.count = queue_pairs;
  rail->describe(mailbox);
  rail->open_.resize(queue_pairs);
  for (uint32_t i = 0; i < queue_pairs; ++i) {
    TUTTI_ASSIGN(QueuePair pair, QueuePair::create(port, settings, rail->queue(), {kSends, kReceives}));
    rail->own_.queue_pairs[i] = pair.number();
    TUTTI_TRY(pair.post_receives(work_number(Work::kReceive, 0), kReceives));
    rail->open_[i].receives = kReceives;
    rail->pairs_.push_back(std::move(pair));
  }
  return rail;
}

void Rail::describe(const RdmaMailbox& mailbox) {
  own_.psn = random_psn();
  own_.gid = port_.gid.ip.bytes;
  own_.gid_type = port_.gid.type;
  own_.lid = port_.attributes.lid;
  own_.mtu = static_cast<uint8_t>(port_.attributes.active_mtu);
  own_.link_layer = port_.attributes.link_layer;
  own_.mailbox = reinterpret_cast<uint64_t>(&mailbox);
  own_.mailbox_key = mailbox_->region->rkey;
  std::copy_n(port_.name.begin(), std::min(port_.name.size(), own_.device.size() - 1), own_.device.begin());
}

/// The loop's queue pair goes before its memory.
Rail::~Rail() {
  pairs_.clear();
  if (loop_ != nullptr) {
    { const QueuePair gone = std::move(loop_->pair); }
    if (loop_->memory != nullptr) port_.device->registrations().remove(loop_->memory);
  }
  if (mailbox_ != nullptr) port_.device->registrations().remove(mailbox_);
}

Status Rail::connect(const Settings& settings, const Endpoint& peer) {
  peer_ = peer;
  peer_.device.back() = '\0';
  TUTTI_TRY(check_rail(own_, peer_));
  while (pairs_.size() > peer_.count) pairs_.pop_back();
  for (size_t i = 0; i < pairs_.size(); ++i)
    TUTTI_TRY(pairs_[i].connect(port_, settings, peer_, peer_.queue_pairs[i], own_.psn));
  open_.resize(pairs_.size());
  return {};
}

Status Rail::post_write(uint32_t pair, uint64_t number, const Local& from, uint64_t address, uint32_t key,
                        uint32_t immediate) {
  TUTTI_TRY(pairs_[pair].post_write(number, from, address, key, immediate));
  ++open_[pair].sends;
  return {};
}

Status Rail::make_loop(const Settings& settings) {
  loop_ = std::make_unique<Loop>();
  TUTTI_ASSIGN(loop_->memory,
               port_.device->registrations().add(&loop_->byte, sizeof loop_->byte, TUTTI_MEMORY_HOST, false));
  TUTTI_ASSIGN(loop_->pair, QueuePair::create(port_, settings, queue(), {kSends, 1}));
  return loop_->pair.connect(port_, settings, own_, loop_->pair.number(), own_.psn);
}

Status Rail::post_flush(const Settings& settings, uint64_t number, uint64_t last_byte, uint32_t key) {
  if (loop_ == nullptr) TUTTI_TRY(make_loop(settings));
  return loop_->pair.post_read(number, {reinterpret_cast<uint64_t>(&loop_->byte), 1, loop_->memory->region->lkey},
                               last_byte, key);
}

Result<uint32_t> Rail::count(const ibv_wc& completion) {
  for (uint32_t i = 0; i < pairs_.size(); ++i) {
    if (pairs_[i].number() != completion.qp_num) continue;
    --(work_of(completion.wr_id) == Work::kReceive ? open_[i].receives : open_[i].sends);
    return i;
  }
  return Status(Code::kInternal, fmt::format("a completion of a queue pair {} that is not one of this connection on {}",
                                             completion.qp_num, port_.name));
}

Status Rail::replenish(uint32_t pair) {
  Open& open = open_[pair];
  if (++open.used < kReceiveBatch) return {};
  open.receives += open.used;
  return pairs_[pair].post_receives(work_number(Work::kReceive, 0), std::exchange(open.used, 0));
}

void Rail::close(const Status& why) {
  state_ = State::kClosing;
  why_ = why;
  closed_at_ = Clock::now();
  for (QueuePair& pair : pairs_) pair.close();
}

Status Rail::drain(std::chrono::milliseconds limit) {
  if (state_ != State::kClosing) return {};
  const bool drained =
      std::all_of(open_.begin(), open_.end(), [](const Open& one) { return one.sends == 0 && one.receives == 0; });
  if (drained) state_ = State::kDrained;
  if (drained || Clock::now() - closed_at_ < limit) return {};
  return {Code::kDevice,
          fmt::format("{} has not returned all requests {} s after its port was given up; see the kernel "
                      "log, and reset the device",
                      port_.name, static_cast<double>(limit.count()) / 1000)};
}

bool Rail::is_down() const {
  return port_.device->has_failed() || port_.device->downs(port_.number) != downs_;
}

}  // namespace tutti::net_ib
