// SPDX-License-Identifier: Apache-2.0
// Connections between the two processes, and messages whose bytes are checked.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "export_peer.h"

namespace {

constexpr uint8_t kPoison = 0xa5;
constexpr size_t kGuard = 64;  // poisoned bytes behind each buffer

/// The same numbers in both processes.
uint32_t mixed(uint32_t a, uint32_t b) {
  uint32_t x = a * 0x9e3779b9u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu;
  x ^= x >> 15;
  x *= 0x2c1b3c6du;
  x ^= x >> 12;
  return x;
}

/// The bytes of a message: a part of one table of random bytes, 4 MiB long at most.
const uint8_t* content_of(uint32_t stream, uint32_t index) {
  constexpr size_t kBegins = 1 << 20;
  constexpr size_t kMost = 4 << 20;
  static const std::vector<uint8_t> kTable = [] {
    std::vector<uint8_t> table(kBegins + kMost);
    uint32_t state = 1;
    for (uint8_t& byte : table) byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    return table;
  }();
  return kTable.data() + mixed(stream, index) % kBegins;
}

size_t bytes_of(uint32_t stream, uint32_t index) {
  const uint32_t choice = mixed(stream, index);
  switch (choice % 8) {
    case 0:
      return 0;
    case 1:
      return 1;
    case 2:
      return choice % 40 == 2 ? (size_t{1} << 20) + choice % 4096 + 1 : 64 << 10;
    default:
      return (choice >> 8) % 9000 | 1;
  }
}

/// A registered buffer with a guard behind it. It must not outlive its connection.
class Buffer {
 public:
  Buffer(const Plugin& plugin, void* comm, size_t bytes)
      : plugin_(plugin), comm_(comm), bytes_(bytes), data_(bytes + kGuard, kPoison) {
    region_ = plugin.add_region(comm, data_.data(), data_.size());
  }
  ~Buffer() {
    if (region_ != nullptr) plugin_.remove_region(comm_, region_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() { return data_.data(); }
  size_t bytes() const { return bytes_; }
  void* region() const { return region_; }
  /// The connection is closed, and its regions are gone.
  void forget_region() { region_ = nullptr; }

  void fill(uint32_t stream, uint32_t index) { std::memcpy(data_.data(), content_of(stream, index), bytes_); }
  /// The message lies in the buffer, and nothing behind it was written.
  void check(uint32_t stream, uint32_t index, size_t bytes) const {
    const std::string message = "message " + std::to_string(index) + " of stream " + std::to_string(stream);
    require(std::memcmp(data_.data(), content_of(stream, index), bytes) == 0, message + " has wrong bytes");
    require(is_poisoned_from(bytes), message + ": bytes behind its end were written");
  }
  bool is_poisoned_from(size_t begin) const {
    return std::all_of(data_.begin() + static_cast<ptrdiff_t>(begin), data_.end(),
                       [](uint8_t byte) { return byte == kPoison; });
  }

 private:
  const Plugin& plugin_;
  void* comm_;
  size_t bytes_;
  std::vector<uint8_t> data_;
  void* region_ = nullptr;
};

/// A connection to the other process and a connection from it.
class Pair {
 public:
  Pair(const Plugin& plugin, const Link& link) : plugin_(plugin) {
    Handle mine{};
    listener_ = plugin.listen(mine);
    theirs_ = link.exchange(mine);
  }
  ~Pair() {
    if (sender_ != nullptr) plugin_.close_sender(sender_);
    if (receiver_ != nullptr) plugin_.close_receiver(receiver_);
    if (listener_ != nullptr) plugin_.close_listener(listener_);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  /// True: both connections stand.
  bool advance() {
    if (sender_ == nullptr) sender_ = plugin_.connect(theirs_);
    if (receiver_ == nullptr) receiver_ = plugin_.accept(listener_);
    return sender_ != nullptr && receiver_ != nullptr;
  }
  void* sender() const { return sender_; }
  void* receiver() const { return receiver_; }
  void close_sender() { plugin_.close_sender(std::exchange(sender_, nullptr)); }
  void close_receiver() { plugin_.close_receiver(std::exchange(receiver_, nullptr)); }

 private:
  const Plugin& plugin_;
  void* listener_ = nullptr;
  Handle theirs_{};
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
};

/// Connections that are made at the same time.
std::vector<std::unique_ptr<Pair>> make_pairs(const Plugin& plugin, const Link& link, size_t count) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (size_t i = 0; i < count; ++i) pairs.push_back(std::make_unique<Pair>(plugin, link));
  const Deadline deadline("connections stand");
  for (bool all = false; !all; deadline.check()) {
    all = true;
    for (const auto& pair : pairs) all &= pair->advance();
  }
  return pairs;
}

/// The sending end of a stream of messages of one tag.
class SendStream {
 public:
  SendStream(const Plugin& plugin, void* comm, uint32_t stream, uint32_t count)
      : plugin_(plugin), comm_(comm), stream_(stream), count_(count) {}

  /// True: all messages are sent.
  bool advance() {
    if (next_ < count_ && open_.size() < kWindow) post();
    std::erase_if(open_, [&](const Open& one) { return plugin_.test(one.request, nullptr); });
    return next_ == count_ && open_.empty();
  }

 private:
  static constexpr size_t kWindow = 32;
  struct Open {
    std::unique_ptr<Buffer> buffer;
    void* request;
  };

  void post() {
    if (ready_ == nullptr) {
      ready_ = std::make_unique<Buffer>(plugin_, comm_, bytes_of(stream_, next_));
      ready_->fill(stream_, next_);
    }
    void* const request = plugin_.send(comm_, ready_->data(), ready_->bytes(), 7, ready_->region());
    if (request == nullptr) return;
    open_.push_back({std::move(ready_), request});
    ++next_;
  }

  const Plugin& plugin_;
  void* comm_;
  uint32_t stream_;
  uint32_t count_;
  uint32_t next_ = 0;
  std::unique_ptr<Buffer> ready_;  // of message `next_`, not taken yet
  std::vector<Open> open_;
};

/// The receiving end. Its buffers are as long as the messages, or longer.
class ReceiveStream {
 public:
  ReceiveStream(const Plugin& plugin, void* comm, uint32_t stream, uint32_t count)
      : plugin_(plugin), comm_(comm), stream_(stream), count_(count) {}

  /// True: all messages have come.
  bool advance() {
    if (next_ < count_ && open_.size() < kWindow) post();
    std::erase_if(open_, [&](const Open& one) { return is_complete(one); });
    return next_ == count_ && open_.empty();
  }

 private:
  static constexpr size_t kWindow = 32;
  struct Open {
    std::unique_ptr<Buffer> buffer;
    uint32_t index;
    void* request;
  };

  void post() {
    const uint32_t more = mixed(next_, stream_) % 3 == 0 ? mixed(next_, 1) % 1000 : 0;
    auto buffer = std::make_unique<Buffer>(plugin_, comm_, bytes_of(stream_, next_) + more);
    void* const request = plugin_.receive(comm_, {buffer->data()}, {buffer->bytes()}, {7}, {buffer->region()});
    if (request == nullptr) return;
    open_.push_back({std::move(buffer), next_++, request});
  }
  bool is_complete(const Open& one) const {
    int size = -1;
    if (!plugin_.test(one.request, &size)) return false;
    const size_t bytes = bytes_of(stream_, one.index);
    require(size == static_cast<int>(bytes), "message " + std::to_string(one.index) + " has " + std::to_string(size) +
                                                 " bytes, not " + std::to_string(bytes));
    one.buffer->check(stream_, one.index, bytes);
    require(plugin_.flush(comm_, one.buffer->data(), size, one.buffer->region()) == nullptr,
            "iflush of memory of the host gives a request");
    return true;
  }

  const Plugin& plugin_;
  void* comm_;
  uint32_t stream_;
  uint32_t count_;
  uint32_t next_ = 0;
  std::vector<Open> open_;
};

/// Messages in both directions over each pair, until both processes have all. `first_stream`: number of the first
/// stream, the same in both processes.
void carry(const Plugin& plugin, const Link& link, const std::vector<std::unique_ptr<Pair>>& pairs, uint32_t rank,
           uint32_t first_stream, uint32_t count) {
  std::deque<SendStream> senders;
  std::deque<ReceiveStream> receivers;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const uint32_t stream = first_stream + 2 * static_cast<uint32_t>(i);
    senders.emplace_back(plugin, pairs[i]->sender(), stream + rank, count);
    receivers.emplace_back(plugin, pairs[i]->receiver(), stream + 1 - rank, count);
  }
  const Deadline deadline("all messages arrive", 20);
  for (bool all = false; !all; deadline.check()) {
    all = true;
    for (SendStream& sender : senders) all &= sender.advance();
    for (ReceiveStream& receiver : receivers) all &= receiver.advance();
  }
  link.meet();
}

}  // namespace
