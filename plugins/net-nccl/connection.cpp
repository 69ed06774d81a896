// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace tutti::net_nccl {
namespace {

/// A region of the plugin. The plugin's own pointer may be null.
struct Registration {
  void* region = nullptr;
};

}  // namespace

bool BusyTags::hold(const Message& message) const {
  if (!message.has_tags || tags_.empty()) return false;
  if (joined_) return true;
  return std::any_of(message.tags.begin(), message.tags.begin() + message.buffers,
                     [this](int tag) { return std::find(tags_.begin(), tags_.end(), tag) != tags_.end(); });
}

void BusyTags::add(const Message& message) {
  if (!message.has_tags || hold(message)) return;
  tags_.insert(tags_.end(), message.tags.begin(), message.tags.begin() + message.buffers);
}

void WaitingRoom::enter(Connection& connection) {
  const std::lock_guard lock(mutex_);
  connections_.push_back(&connection);
  count_.store(connections_.size(), std::memory_order_relaxed);
}

void WaitingRoom::leave(Connection& connection) {
  const std::lock_guard lock(mutex_);
  std::erase(connections_, &connection);
  count_.store(connections_.size(), std::memory_order_relaxed);
}

/// Waits for no lock: the thread that holds a lock makes progress.
void WaitingRoom::offer() {
  if (count_.load(std::memory_order_relaxed) == 0) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  std::erase_if(connections_, [](Connection* connection) { return connection->offer_waiting(); });
  count_.store(connections_.size(), std::memory_order_relaxed);
}

Connection::Connection(Library& library, const Sink& sink, WaitingRoom& room, const Device& device, void* comm,
                       Role role)
    : library_(library),
      adapter_(library.adapter()),
      sink_(sink),
      room_(room),
      device_(device.name),
      most_buffers_(static_cast<uint32_t>(device.max_receives)),
      comm_(comm),
      role_(role) {}

/// The plugin ends requests that are under way. Messages that wait here are not sent.
Connection::~Connection() {
  room_.leave(*this);
  if (scratch_registration_ != nullptr) static_cast<void>(deregister_memory(scratch_registration_));
  const LogScope log(sink_);
  const int code = sends() ? adapter_.close_sender(comm_) : adapter_.close_receiver(comm_);
  if (code == kNcclSuccess) return;
  sink_.write(kNcclWarn,
              std::string(library_.failure(doing(sends() ? "closeSend" : "closeRecv"), code).text()).c_str());
}

std::string Connection::doing(const char* entry) const {
  return fmt::format("{} on a connection {} device '{}'", entry, sends() ? "from" : "to", device_);
}

Result<void*> Connection::register_memory(void* address, uint64_t bytes, uint32_t memory) {
  if (bytes == 0) return static_cast<void*>(nullptr);
  const LogScope log(sink_);
  auto registration = std::make_unique<Registration>();
  const int kind = memory == TUTTI_MEMORY_HOST ? kNcclHost : kNcclCuda;
  const int code = adapter_.add_region(comm_, address, bytes, kind, &registration->region);
  if (code != kNcclSuccess) {
    return library_.failure(fmt::format("regMr of {} bytes of {}", bytes, kind == kNcclHost ? "the host" : "a GPU"),
                            code);
  }
  return static_cast<void*>(registration.release());
}

Result<void*> Connection::register_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd) {
  if (!adapter_.has_dmabuf()) {
    return Status(Code::kUnsupported, fmt::format("NCCL network plugin {} has no regMrDmaBuf", library_.place()));
  }
  const LogScope log(sink_);
  auto registration = std::make_unique<Registration>();
  const int code = adapter_.add_dmabuf(comm_, address, bytes, offset, fd, &registration->region);
  if (code != kNcclSuccess) return library_.failure(fmt::format("regMrDmaBuf of {} bytes", bytes), code);
  return static_cast<void*>(registration.release());
}

Status Connection::deregister_memory(void* raw) {
  const std::unique_ptr<Registration> registration(static_cast<Registration*>(raw));
  if (registration == nullptr) return {};
  const LogScope log(sink_);
  const int code = adapter_.remove_region(comm_, registration->region);
  return code == kNcclSuccess ? Status() : library_.failure("deregMr", code);
}

/// Null: too many outstanding.
Message* Connection::take() {
  if (free_.empty() && pool_.size() < kMostMessages) {
    pool_.emplace_back().connection = this;
    free_.push_back(&pool_.back());
  }
  if (free_.empty()) return nullptr;
  Message* const message = free_.back();
  free_.pop_back();
  message->state = Message::State::kWaiting;
  message->buffers = message->per_unit = message->units = 1;
  message->posted = message->done = 0;
  message->has_tags = true;
  return message;
}

void Connection::release(Message& message) {
  message.state = Message::State::kFree;
  message.failure = {};
  free_.push_back(&message);
}

/// Plugins read the region also for a message without bytes.
Result<void*> Connection::scratch_region() {
  if (scratch_registration_ == nullptr) {
    TUTTI_ASSIGN(scratch_registration_, register_memory(&scratch_, sizeof scratch_, TUTTI_MEMORY_HOST));
  }
  return static_cast<Registration*>(scratch_registration_)->region;
}

Status Connection::fill(Message& message, uint32_t buffer, void* address, uint64_t bytes, uint32_t tag,
                        void* registration) {
  message.data.at(buffer) = address;
  message.bytes.at(buffer) = bytes;
  message.tags.at(buffer) = static_cast<int>(tag);
  if (registration != nullptr) {
    message.regions.at(buffer) = static_cast<Registration*>(registration)->region;
    return {};
  }
  if (bytes != 0) {
    return {Code::kInvalidArgument,
            fmt::format("a message of {} bytes has no registered memory, which NCCL's plugins need", bytes)};
  }
  message.data.at(buffer) = &scratch_;
  TUTTI_ASSIGN(message.regions.at(buffer), scratch_region());
  return {};
}

Status Connection::hand_in(Message& message, sdk::Request*& request) {
  waiting_.push_back(&message);
  post_waiting();
  if (sends()) test_posted(nullptr);  // many plugins begin a send in its first test
  enter_or_leave();
  if (message.state == Message::State::kFailed) {
    Status why = message.failure;
    release(message);
    return why;
  }
  request = &message;
  return {};
}

Status Connection::send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) {
  if (!sends()) return {Code::kInvalidArgument, "this end of the connection receives"};
  const LogScope log(sink_);
  const std::lock_guard lock(mutex_);
  Message* const message = take();
  if (message == nullptr) return {};
  if (Status filled = fill(*message, 0, const_cast<void*>(address), bytes, tag, registration); !filled.ok()) {
    release(*message);
    return filled;
  }
  return hand_in(*message, request);
}

/// A plugin that takes fewer buffers at once gets one request for each buffer.
Status Connection::recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                        void* const* registrations, sdk::Request*& request) {
  if (sends()) return {Code::kInvalidArgument, "this end of the connection sends"};
  if (count == 0 || count > kMostBuffers) {
    return {Code::kInvalidArgument, fmt::format("a receive takes 1 to {} buffers, not {}", kMostBuffers, count)};
  }
  const LogScope log(sink_);
  const std::lock_guard lock(mutex_);
  Message* const message = take();
  if (message == nullptr) return {};
  message->buffers = count;
  message->per_unit = count <= most_buffers_ ? count : 1;
  message->units = count / message->per_unit;
  for (uint32_t i = 0; i < count; ++i) {
    Status filled = fill(*message, i, addresses[i], bytes[i], tags[i], registrations[i]);
    if (filled.ok()) continue;
    release(*message);
    return filled;
  }
  return hand_in(*message, request);
}

Status Connection::flush(uint32_t count, void* const* addresses, const uint64_t* bytes, void* const* registrations,
                         sdk::Request*& request) {
  if (sends()) return {Code::kInvalidArgument, "this end of the connection sends"};
  if (count == 0) return {};
  if (count > kMostBuffers) {
    return {Code::kInvalidArgument, fmt::format("a flush takes at most {} buffers, not {}", kMostBuffers, count)};
  }
  const LogScope log(sink_);
  const std::lock_guard lock(mutex_);
  Message* const message = take();
  if (message == nullptr) return {Code::kInternal, "more requests are outstanding than a connection takes"};
  message->has_tags = false;
  std::array<int, kMostBuffers> sizes{};
  for (uint32_t i = 0; i < count; ++i) {
    if (Status filled = fill(*message, i, addresses[i], bytes[i], 0, registrations[i]); !filled.ok()) {
      release(*message);
      return filled;
    }
    sizes.at(i) = static_cast<int>(std::min<uint64_t>(bytes[i], std::numeric_limits<int>::max()));
  }
  void*& posted = message->requests[0] = nullptr;
  const int code = adapter_.flush(comm_, static_cast<int>(count), message->data.data(), sizes.data(),
                                  message->regions.data(), &posted);
  if (code != kNcclSuccess || posted == nullptr) {  // null: nothing to wait for
    release(*message);
    return code == kNcclSuccess ? Status() : library_.lost(doing("iflush"), code);
  }
  message->posted = 1;
  message->state = Message::State::kPosted;
  posted_.push_back(message);
  request = message;
  return {};
}

/// A failed message stays in its place until the connection is closed.
Status Connection::test(sdk::Request& raw, bool& done, uint64_t* bytes) {
  auto& message = static_cast<Message&>(raw);
  const LogScope log(sink_);
  room_.offer();
  const std::lock_guard lock(mutex_);
  if (message.state == Message::State::kWaiting || message.state == Message::State::kPosted) advance(message);
  if (message.state == Message::State::kFailed) return message.failure;
  if (message.state != Message::State::kDone) return {};
  done = true;
  if (bytes != nullptr && !sends() && message.has_tags) std::copy_n(message.bytes.begin(), message.buffers, bytes);
  release(message);
  return {};
}

/// A waiting message needs the end of earlier messages, which the host may not test now.
void Connection::advance(const Message& wanted) {
  if (!waiting_.empty()) post_waiting();
  test_posted(waiting_.empty() ? &wanted : nullptr);
  if (!waiting_.empty()) post_waiting();
  enter_or_leave();
}

void Connection::enter_or_leave() {
  const bool waits = !waiting_.empty();
  if (waits == std::exchange(is_in_room_, waits)) return;
  waits ? room_.enter(*this) : room_.leave(*this);
}

/// The room's mutex is held, so this connection's mutex is not waited for.
bool Connection::offer_waiting() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const LogScope log(sink_);
  post_waiting();
  test_posted(nullptr);
  is_in_room_ = !waiting_.empty();
  return !is_in_room_;
}

/// A plugin may refuse a send until the peer has posted a receive of its tag, so other tags are tried, too.
void Connection::post_waiting() {
  BusyTags busy(most_buffers_ == 1 || !sends());
  for (size_t i = 0; i < waiting_.size();) {
    Message& message = *waiting_[i];
    if (busy.hold(message) || !post_units(message)) {
      busy.add(message);
      ++i;
      continue;
    }
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    if (message.state == Message::State::kFailed) continue;
    message.state = Message::State::kPosted;
    posted_.push_back(&message);
  }
}

/// False: the plugin does not take all of it now.
bool Connection::post_units(Message& message) {
  for (; message.posted < message.units; ++message.posted) {
    const size_t first = size_t{message.posted} * message.per_unit;
    void*& request = message.requests.at(message.posted) = nullptr;  // not null would make completion optional
    const int code =
        sends()
            ? adapter_.send(comm_, message.data[0], message.bytes[0], message.tags[0], message.regions[0], &request)
            : adapter_.receive(comm_, static_cast<int>(message.per_unit), &message.data.at(first),
                               &message.bytes.at(first), &message.tags.at(first), &message.regions.at(first), &request);
    if (code != kNcclSuccess) {
      fail(message, library_.lost(doing(sends() ? "isend" : "irecv"), code));
      return true;
    }
    if (request == nullptr) return false;
  }
  return true;
}

/// NCCL tests the oldest request of a tag alone, so plugins need not bear any other order. A plugin that takes one
/// buffer at once sees one tag in each connection of NCCL, so it may ignore tags: there, the oldest request is tested.
void Connection::test_posted(const Message* last) {
  BusyTags busy(most_buffers_ == 1);
  for (size_t i = 0; i < posted_.size();) {
    Message& message = *posted_[i];
    if (!busy.hold(message)) test_units(message);
    const bool is_posted = message.state == Message::State::kPosted;
    if (!is_posted) posted_.erase(posted_.begin() + static_cast<ptrdiff_t>(i));
    if (&message == last) return;
    if (!is_posted) continue;
    busy.add(message);
    ++i;
  }
}

void Connection::test_units(Message& message) {
  for (uint32_t unit = 0; unit < message.units; ++unit) {
    if ((message.done >> unit & 1u) != 0) continue;
    int done = 0;
    std::array<int, kMostBuffers> lengths{};
    lengths.fill(-1);
    const int code = adapter_.test(message.requests.at(unit), &done, lengths.data());
    if (code != kNcclSuccess) return fail(message, library_.lost(doing("test"), code));
    if (done == 0) {
      if (most_buffers_ == 1) return;
      continue;
    }
    message.done |= 1u << unit;
    if (!sends() && message.has_tags && !take_lengths(message, unit, lengths)) return;
  }
  if (message.done == (1u << message.units) - 1) message.state = Message::State::kDone;
}

bool Connection::take_lengths(Message& message, uint32_t unit, const std::array<int, kMostBuffers>& lengths) {
  for (uint32_t i = 0; i < message.per_unit; ++i) {
    uint64_t& bytes = message.bytes.at(unit * message.per_unit + i);
    const int length = lengths.at(i);
    if (length < 0 || static_cast<uint64_t>(length) > bytes) {
      fail(message, Status(length < 0 ? Code::kInternal : Code::kMismatch,
                           fmt::format("NCCL network plugin {}: {} reports {} bytes of a message whose buffer has {}",
                                       library_.place(), doing("test"), length, bytes)));
      return false;
    }
    bytes = static_cast<uint64_t>(length);
  }
  return true;
}

void Connection::fail(Message& message, Status why) {
  message.state = Message::State::kFailed;
  message.failure = std::move(why);
}

}  // namespace tutti::net_nccl
