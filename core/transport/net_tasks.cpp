// SPDX-License-Identifier: Apache-2.0
#include "transport/net_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "log/log.h"
#include "progress/bell.h"
#include "transport/message_hash.h"

namespace tutti::transport {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kTag = 0;       // a connection carries one stream of slots
constexpr uint64_t kEndRoom = 64;  // behind each slot, for statement and end; keeps slots aligned
static_assert(sizeof(uint64_t) + sizeof(HashedEnd) <= kEndRoom);
/// A message without an end, so it is shorter than all others.
constexpr std::array<char, 8> kFarewell = {'F', 'a', 'r', 'e', 'w', 'e', 'l', 'l'};
static_assert(sizeof kFarewell < sizeof(MessageEnd));

tutti_slot_layout with_ends(tutti_slot_layout layout) {
  layout.slot_stride += kEndRoom;
  return layout;
}

std::atomic_ref<uint64_t> counter(uint64_t* value) {
  return std::atomic_ref<uint64_t>(*value);
}

}  // namespace

SlotMemory::SlotMemory(const tutti_slot_layout& asked, uint32_t peer, tutti_bell* peer_bell, bool hashes,
                       std::shared_ptr<Receipts> receipts)
    : sizes_(asked.slot_count), hashes_(hashes), receipts_(std::move(receipts)) {
  const tutti_slot_layout layout = with_ends(asked);
  memory_.reset(static_cast<uint8_t*>(::operator new(connection_bytes(layout), std::align_val_t(kPage))));
  std::memset(memory_.get(), 0, connection_bytes(layout));
  connection_ = connection_at(memory_.get(), layout, peer);
  connection_.flags = TUTTI_CONNECTION_NETWORK;
  connection_.sizes = sizes_.data();
  connection_.peer_bell = peer_bell;
}

void SlotMemory::Free::operator()(uint8_t* memory) const {
  ::operator delete(memory, std::align_val_t(kPage));
}

uint8_t* SlotMemory::slot(uint64_t step) const {
  return connection_.slots + (step & (connection_.slot_count - 1)) * connection_.slot_stride;
}

uint64_t SlotMemory::seal(uint64_t step) {
  uint64_t bytes = std::min(size_of_slot(step), connection_.slot_stride - kEndRoom);
  uint8_t* const message = slot(step);
  if (receipts_ != nullptr) {
    const uint64_t statement = receipts_->state(step);
    std::memcpy(message + bytes, &statement, sizeof statement);
    bytes += sizeof statement;
  }
  const HashedEnd end{hashes_ ? hash_message(message, bytes, step) : 0, {step, bytes}};
  if (hashes_) {
    std::memcpy(message + bytes, &end, sizeof end);
  } else {
    std::memcpy(message + bytes, &end.end, sizeof end.end);
  }
  return bytes + end_bytes();
}

uint64_t SlotMemory::write_farewell(uint64_t step) {
  std::memcpy(slot(step), kFarewell.data(), sizeof kFarewell);
  return sizeof kFarewell;
}

bool SlotMemory::is_farewell(uint64_t step, uint64_t bytes) const {
  return bytes == sizeof kFarewell && std::memcmp(slot(step), kFarewell.data(), sizeof kFarewell) == 0;
}

/// The text names the rule of plugin/network_rules.h that the plugin most likely breaks.
std::string SlotMemory::open(uint64_t step, uint64_t bytes) {
  const uint64_t least = statement_bytes() + end_bytes();
  const uint64_t most = connection_.slot_stride - kEndRoom + least;
  if (bytes < least || bytes > most) {
    return fmt::format("message {} has {} bytes; {} to {} are possible (NET-14)", step, bytes, least, most);
  }
  HashedEnd end{};
  bytes -= end_bytes();
  const uint8_t* const from = slot(step) + bytes;
  if (hashes_) {
    std::memcpy(&end, from, sizeof end);
  } else {
    std::memcpy(&end.end, from, sizeof end.end);
  }
  size_of_slot(step) = bytes - statement_bytes();
  std::string difference = this->difference(step, bytes, end);
  if (receipts_ != nullptr && difference.empty()) {
    uint64_t heard = 0;
    std::memcpy(&heard, from - sizeof heard, sizeof heard);
    receipts_->take(step, heard);
  }
  return difference;
}

std::string SlotMemory::difference(uint64_t step, uint64_t bytes, const HashedEnd& end) const {
  if (end.end.step == step && end.end.bytes == bytes) {
    if (!hashes_) return {};
    const uint64_t hash = hash_message(slot(step), bytes, step);
    if (hash == end.hash) return {};
    return fmt::format(
        "the {} bytes of message {} have the checksum {:016x}, but the sender computed {:016x} "
        "(check.data, NET-14)",
        bytes, step, hash, end.hash);
  }
  const std::string differs =
      fmt::format("message {} has {} bytes, but does not end as the sender ended it", step, bytes + end_bytes());
  if (end.end.bytes != bytes) return differs + " (NET-14)";
  const bool is_later = end.end.step > step;
  return fmt::format("{}: message {} came {} ({})", differs, end.end.step, is_later ? "instead" : "again",
                     is_later ? "NET-13" : "NET-20");
}

// Partners of HostTeam::acquire and HostTeam::publish.
uint64_t SlotMemory::load_tail() const {
  return counter(connection_.tail).load(std::memory_order_seq_cst);
}
uint64_t SlotMemory::load_head() const {
  return counter(connection_.head).load(std::memory_order_seq_cst);
}
void SlotMemory::store_tail(uint64_t value) {
  counter(connection_.tail).store(value, std::memory_order_seq_cst);
}
void SlotMemory::store_head(uint64_t value) {
  counter(connection_.head).store(value, std::memory_order_seq_cst);
}

Result<bool> SlotRequests::post_sends(Channel& channel, void* registration) {
  bool moved = false;
  const uint64_t tail = memory_.load_tail();
  for (; posted_ < tail && posted_ - completed_ < requests_.size(); ++posted_) {
    most_posted_ = std::max(most_posted_, posted_ + 1);
    void*& sent = request(posted_);
    TUTTI_ASSIGN(sent, channel.send({memory_.slot(posted_), memory_.seal(posted_), kTag, registration}));
    if (sent == nullptr) break;
    moved = true;
  }
  return moved;
}

Status SlotRequests::complete_sends(Channel& channel) {
  for (; completed_ < posted_; ++completed_) {
    TUTTI_ASSIGN(const bool done, channel.test(request(completed_), nullptr));
    if (!done) break;
  }
  return {};
}

Result<bool> SlotRequests::post_farewell(Channel& channel, void* registration) {
  const bool follows_all = posted_ == memory_.load_tail() && posted_ - completed_ < requests_.size();
  if (has_farewell_ || !follows_all) return false;
  void*& sent = request(posted_);
  TUTTI_ASSIGN(sent, channel.send({memory_.slot(posted_), memory_.write_farewell(posted_), kTag, registration}));
  if (sent == nullptr) return false;
  ++posted_;
  return has_farewell_ = true;
}

Result<bool> SlotRequests::post_receives(Channel& channel, void* registration) {
  if (has_farewell_) return false;
  const uint64_t free_until = memory_.load_head() + requests_.size();
  const uint64_t before = posted_;
  for (; posted_ < free_until; ++posted_) {
    void*& received = request(posted_);
    TUTTI_ASSIGN(received, channel.recv({memory_.slot(posted_), memory_.connection().slot_stride, kTag, registration}));
    if (received == nullptr) break;
  }
  return posted_ != before;
}

Status SlotRequests::take_arrived(Channel& channel, tutti_bell& executors) {
  const uint64_t before = completed_;
  Status completed = complete_receives(channel);
  if (completed_ != before) {
    memory_.store_tail(completed_);
    progress::ring(executors);
  }
  return completed;
}

Status SlotRequests::complete_receives(Channel& channel) {
  for (; completed_ < posted_; ++completed_) {
    uint64_t bytes = 0;
    TUTTI_ASSIGN(const bool done, channel.test(request(completed_), &bytes));
    if (!done) return {};
    if (memory_.is_farewell(completed_, bytes)) {
      has_farewell_ = true;
      return {};
    }
    if (const std::string difference = memory_.open(completed_, bytes); !difference.empty()) {
      return channel.mismatch(difference);
    }
  }
  return {};
}

SendTask::SendTask(const Net& net, const Key& key, uint32_t device, const tutti_net_handle& handle,
                   tutti_bell* engine_bell)
    : net_(net),
      key_(key),
      dial_(net, key, device, handle),
      state_(net, key, true),
      memory_(net.options().keys.protocols[key.protocol], key.peer, engine_bell, net.options().check_data) {}

bool SendTask::idle() const {
  if (!has_unsent() && !owes_farewell()) return true;
  return (breakage_.broken() || !net_.options().serves_left) && net_.standing(key_.peer).left;
}

/// A connection that does not stand has no receiver that would miss a farewell.
bool SendTask::owes_farewell() const {
  if (!net_.is_leaving() || channel_ == nullptr || breakage_.broken()) return false;
  return !requests_.has_farewell() || requests_.completed() < requests_.posted();
}

Result<bool> SendTask::progress() {
  if (!breakage_.broken()) {
    Result<bool> moved = advance();
    if (moved.ok() || moved.status().code() != Code::kRemote) return moved;
    breakage_.begin(moved.status());
    state_.enter(LinkState::Phase::kBroken);
  }
  TUTTI_TRY(breakage_.verdict(net_, key_.peer, has_unsent()));
  return false;
}

Result<bool> SendTask::advance() {
  if (channel_ != nullptr) return move();
  TUTTI_ASSIGN(channel_, dial_.advance());
  if (channel_ == nullptr) {
    if (dial_.introduces()) state_.enter(LinkState::Phase::kIntroduces);
    return false;
  }
  TUTTI_ASSIGN(registration_, channel_->register_memory({memory_.begin(), memory_.bytes()}));
  state_.enter(LinkState::Phase::kStands);
  log::debug("network '{}', {}: connected", net_.options().name, net_.ends(key_, true));
  return true;
}

Result<bool> SendTask::move() {
  TUTTI_ASSIGN(bool sent, requests_.post_sends(*channel_, registration_));
  if (net_.is_leaving()) {
    TUTTI_ASSIGN(const bool told, requests_.post_farewell(*channel_, registration_));
    sent = sent || told;
  }
  const uint64_t before = requests_.completed();
  TUTTI_TRY(requests_.complete_sends(*channel_));
  state_.count(requests_.posted(), requests_.completed());
  if (requests_.completed() == before) return sent;
  memory_.store_head(requests_.completed());
  progress::ring(*net_.options().bell);
  return true;
}

ReceiveTask::ReceiveTask(const Net& net, const Key& key, tutti_bell* engine_bell)
    : net_(net),
      key_(key),
      state_(net, key, false),
      memory_(net.options().keys.protocols[key.protocol], key.peer, engine_bell, net.options().check_data) {}

Status ReceiveTask::attach(std::unique_ptr<Channel> channel) {
  attached_.give(std::move(channel));
  return {};
}

Status ReceiveTask::connect() {
  channel_ = attached_.take();
  if (channel_ == nullptr) return {};
  channel_->set_ends(net_.ends(key_, false));
  state_.enter(LinkState::Phase::kStands);
  TUTTI_ASSIGN(registration_, channel_->register_memory({memory_.begin(), memory_.bytes()}));
  return {};
}

Result<bool> ReceiveTask::progress() {
  if (channel_ == nullptr) TUTTI_TRY(connect());
  if (channel_ == nullptr) return false;
  if (!breakage_.broken()) {
    Result<bool> moved = move();
    if (requests_.has_farewell()) {
      state_.enter(LinkState::Phase::kLeft);
      breakage_.begin(Status(Code::kRemote, fmt::format("network '{}' waits for data {}, but the sender has left",
                                                        net_.options().name, net_.ends(key_, false))));
      breakage_.excuse();
      return true;
    }
    if (moved.ok() || moved.status().code() != Code::kRemote) return moved;
    breakage_.begin(moved.status());
    state_.enter(LinkState::Phase::kBroken);
  }
  TUTTI_TRY(breakage_.verdict(net_, key_.peer, false));
  return false;
}

/// Takes arrived data before it posts more: a peer that has left takes no post, but its earlier data still counts.
Result<bool> ReceiveTask::move() {
  const uint64_t before = requests_.completed();
  TUTTI_TRY(requests_.take_arrived(*channel_, *net_.options().bell));
  TUTTI_ASSIGN(const bool posted, requests_.post_receives(*channel_, registration_));
  state_.count(requests_.posted(), requests_.completed());
  return posted || requests_.completed() != before;
}

AcceptTask::AcceptTask(const Net& net) : net_(net), mark_(net.watch(), "at " + net.own_place()) {
  for (const Net::Device& device : net.devices()) entrances_.push_back({device.index, device.listener});
}

AcceptTask::~AcceptTask() {
  for (const Entrance& entrance : entrances_) {
    if (entrance.state != nullptr) mark_.call("cancel", [&] { net_.options().ops->cancel(entrance.state); });
  }
}

void AcceptTask::expect(const Key& key, std::shared_ptr<Awaiter> receiver) {
  const std::lock_guard lock(mutex_);
  expected_[who_of(key, Purpose::kData, 0)] = std::move(receiver);
  expected_count_.store(expected_.size(), std::memory_order_relaxed);
}

void AcceptTask::expect(const Key& key, Purpose purpose, uint32_t home, std::shared_ptr<Rejoiner> rejoiner) {
  const std::lock_guard lock(mutex_);
  rejoiners_[who_of(key, purpose, home)] = std::move(rejoiner);
}

AcceptTask::Who AcceptTask::who_of(const Key& key, Purpose purpose, uint32_t home) {
  return {key.peer, static_cast<uint32_t>(key.traffic), key.channel, key.protocol, purpose, home};
}

bool AcceptTask::asks(const Entrance& entrance, std::chrono::steady_clock::time_point now) const {
  return entrance.state != nullptr || expected_count_.load(std::memory_order_relaxed) > 0 ||
         hurried_.load(std::memory_order_relaxed) > 0 || now >= next_look_;
}

Result<bool> AcceptTask::progress() {
  bool accepted = false;
  const auto now = std::chrono::steady_clock::now();
  for (Entrance& entrance : entrances_) {
    if (!asks(entrance, now)) continue;
    TUTTI_ASSIGN(const bool one, accept(entrance));
    accepted = accepted || one;
  }
  if (now >= next_look_) next_look_ = now + kLookInterval;
  TUTTI_ASSIGN(const bool read, read_hellos());
  TUTTI_TRY(net_.contract());  // the end of a guest is no failure, but a broken rule is
  TUTTI_ASSIGN(const bool handed, hand_over());
  return accepted || read || handed;
}

Result<bool> AcceptTask::accept(Entrance& entrance) {
  void* connection = nullptr;
  int32_t code = TUTTI_OK;
  {
    const auto lock = net_.lock_setup();
    code = mark_.call("accept",
                      [&] { return net_.options().ops->accept(entrance.listener, &entrance.state, &connection); });
  }
  if (code == TUTTI_AGAIN || (code == TUTTI_OK && connection == nullptr)) return false;
  entrance.state = nullptr;
  const std::string ends = net_.ends(entrance.device);
  if (code != TUTTI_OK) return net_.failure("cannot accept connections " + ends, code);
  Guest guest{entrance.device, std::make_unique<NetHello>(), std::make_unique<Channel>(net_, connection, ends), nullptr,
              nullptr};
  auto registration = guest.channel->register_memory({guest.hello.get(), sizeof(NetHello)});
  if (!registration.ok()) {
    TUTTI_TRY(failure_of_guest(registration.status()));
    return true;
  }
  guest.registration = *registration;
  if (guests_.size() >= most_guests()) guests_.pop_front();
  guests_.push_back(std::move(guest));
  return true;
}

bool AcceptTask::is_friend(const NetHello& hello) const {
  const KeySpace& keys = net_.options().keys;
  return hello.communicator == net_.options().communicator && hello.rank < net_.peer_count() &&
         hello.traffic < kTrafficCount && hello.channel < keys.channels && hello.protocol < keys.protocols.size() &&
         hello.purpose < kPurposeCount && hello.home < homes();
}

Status AcceptTask::failure_of_guest(const Status& why) const {
  if (why.code() != Code::kRemote) return why;
  log::info("network '{}': a connection that has not said its rank has ended: {}", net_.options().name, why.text());
  return {};
}

Result<bool> AcceptTask::read_hellos() {
  bool moved = false;
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    if (guest->request == nullptr) {
      auto request = guest->channel->recv({guest->hello.get(), sizeof(NetHello), kTag, guest->registration});
      if (!request.ok()) {
        TUTTI_TRY(failure_of_guest(request.status()));
        guest = guests_.erase(guest);
        moved = true;
        continue;
      }
      guest->request = *request;
    }
    uint64_t bytes = 0;
    auto done = guest->request != nullptr ? guest->channel->test(guest->request, &bytes) : Result<bool>(false);
    if (done.ok() && !*done) {
      ++guest;
      continue;
    }
    const NetHello& hello = *guest->hello;
    if (!done.ok()) TUTTI_TRY(failure_of_guest(done.status()));
    if (done.ok() && bytes != sizeof hello && is_friend(hello)) {
      return Status(Code::kInternal, fmt::format("network '{}': the first message of rank {} has {} bytes, but the "
                                                 "plugin reports {} (NET-14)",
                                                 net_.options().name, hello.rank, sizeof hello, bytes));
    }
    // A stranger, or a connection that gave up, changes nothing.
    if (done.ok() && bytes == sizeof hello && is_friend(hello)) {
      guest->channel->deregister_memory(guest->registration);
      const Who who{hello.rank, hello.traffic, hello.channel, hello.protocol, static_cast<Purpose>(hello.purpose),
                    hello.home};
      // After a link has come back, an earlier connection may arrive later.
      Arrival& latest = arrived_[who];
      if (latest.channel == nullptr || latest.generation <= hello.generation) {
        latest = {{&net_, guest->device, hello.device},
                  static_cast<Purpose>(hello.purpose),
                  hello.generation,
                  std::move(guest->channel)};
      }
    }
    guest = guests_.erase(guest);
    moved = true;
  }
  return moved;
}

Result<bool> AcceptTask::hand_over() {
  if (arrived_.empty()) return false;
  bool moved = false;
  const std::lock_guard lock(mutex_);
  for (auto it = arrived_.begin(); it != arrived_.end();) {
    TUTTI_ASSIGN(const bool taken, hand_over(it->first, it->second));
    it = taken ? arrived_.erase(it) : std::next(it);
    moved = moved || taken;
  }
  return moved;
}

/// False: the connection is not expected yet. With mutex_ held.
Result<bool> AcceptTask::hand_over(const Who& who, Arrival& arrival) {
  const auto receiver = expected_.find(who);
  const auto rejoiner = rejoiners_.find(who);
  if (receiver == expected_.end() && rejoiner == rejoiners_.end()) return false;
  {
    const auto held = net_.lock_setup();
    TUTTI_TRY(net_.count_connection(arrival.route.device));
  }
  if (rejoiner != rejoiners_.end()) {
    rejoiner->second->arrive(std::move(arrival));
    return true;
  }
  TUTTI_TRY(receiver->second->attach(std::move(arrival.channel)));
  expected_.erase(receiver);
  expected_count_.store(expected_.size(), std::memory_order_relaxed);
  return true;
}

}  // namespace tutti::transport
