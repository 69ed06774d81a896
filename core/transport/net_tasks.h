// SPDX-License-Identifier: Apache-2.0
// The progress engine's tasks behind a network connection: accept, send slots, receive slots.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "transport/net.h"

namespace tutti::transport {

/// The first message on every network connection: who sends, and on which connection of the communicator.
struct NetHello {
  uint64_t communicator;
  uint32_t rank;
  uint32_t lane;
  uint32_t channel;
  uint32_t protocol;
  uint8_t reserved[40];
};
static_assert(sizeof(NetHello) == 64);

/// Follows the bytes of a slot on the network. The receiver compares it with the message that the plugin reports, so
/// that a message which a plugin cuts, lengthens, loses or repeats is an error.
struct MessageEnd {
  uint64_t step;   ///< number of the message on its connection, from 0
  uint64_t bytes;  ///< before this record
};
static_assert(sizeof(MessageEnd) == 16);

/// Counters and slots of one network connection, in this process. Each slot has room for a MessageEnd.
class SlotMemory {
 public:
  /// Bytes of the longest message.
  static uint64_t message_bytes(const tutti_slot_layout& layout) { return layout.slot_stride + sizeof(MessageEnd); }

  SlotMemory(const tutti_slot_layout& layout, uint32_t peer, tutti_bell* peer_bell);
  tutti_connection& connection() { return connection_; }
  uint8_t* slot(uint64_t step) const;
  /// Appends the end to a slot that an executor filled. Returns the bytes of the message.
  uint64_t seal(uint64_t step);
  /// Takes the end off a message of `bytes` bytes that the network delivered. Empty: it is whole; else the difference.
  std::string open(uint64_t step, uint64_t bytes);
  void* begin() const { return connection_.slots; }
  uint64_t bytes() const { return connection_.slot_count * connection_.slot_stride; }
  uint64_t load_tail() const;
  uint64_t load_head() const;
  void store_tail(uint64_t value);
  void store_head(uint64_t value);

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  uint64_t& size_of_slot(uint64_t step) { return sizes_[step & (connection_.slot_count - 1)]; }

  std::unique_ptr<uint8_t, Free> memory_;
  std::vector<uint64_t> sizes_;
  tutti_connection connection_{};
};

/// A connection of the plugin with its registered slot memory and the requests posted on it, one per slot.
class Channel {
 public:
  /// `ends`: between which ranks and devices, for messages.
  Channel(const Net& net, void* connection, std::string ends)
      : net_(net), connection_(connection), ends_(std::move(ends)) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void set_ends(std::string ends) { ends_ = std::move(ends); }
  const std::string& ends() const { return ends_; }
  /// Registers the memory of the requests that follow, in place of what was registered before.
  Status register_memory(void* address, uint64_t bytes);
  /// Null request: not now.
  Result<void*> send(const void* address, uint64_t bytes);
  Result<void*> recv(void* address, uint64_t bytes);
  Result<bool> test(void* request, uint64_t* bytes);

 private:
  Status failure(int32_t code) const;

  const Net& net_;
  void* connection_;
  std::string ends_;
  void* registration_ = nullptr;
};

/// A connection that broke. This is a failure of the communicator, unless the peer has left in good order and no call
/// waits for it. The hub knows more than a connection: it may report that the peer has left, or died. The verdict
/// leaves it a moment for that.
class Breakage {
 public:
  void begin(Status failure);
  bool broken() const { return !failure_.ok(); }
  /// The failure, once it is one. `undelivered`: this rank has data for the peer.
  Status verdict(const Net& net, uint32_t peer, bool undelivered);

 private:
  Status failure_;
  std::chrono::steady_clock::time_point since_;
};

/// Sends this rank's filled slots to one receiver.
class SendTask : public progress::Task {
 public:
  SendTask(const Net& net, const Key& key, uint32_t device, const tutti_net_handle& handle, tutti_bell* engine_bell);
  ~SendTask() override;
  Result<bool> progress() override;
  bool idle() const override;
  tutti_connection& connection() { return memory_.connection(); }

 private:
  Result<bool> advance();
  Result<bool> connect();
  Result<bool> greet();
  Result<bool> move();

  const Net& net_;
  Key key_;
  uint32_t device_;
  tutti_net_handle handle_;
  SlotMemory memory_;
  std::vector<uint8_t> hello_;
  void* connect_state_ = nullptr;
  std::unique_ptr<Channel> channel_;
  void* hello_request_ = nullptr;
  bool greeted_ = false;
  std::vector<void*> requests_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  Breakage breakage_;
};

/// Receives one sender's slots.
class ReceiveTask : public progress::Task {
 public:
  ReceiveTask(const Net& net, const Key& key, tutti_bell* engine_bell);
  Result<bool> progress() override;
  bool idle() const override { return true; }
  tutti_connection& connection() { return memory_.connection(); }
  /// The sender has connected. Called within the engine's round.
  Status attach(std::unique_ptr<Channel> channel);

 private:
  Result<bool> move();
  /// Takes the messages that have arrived, up to the first failure, which it returns.
  Status take_arrived();

  const Net& net_;
  Key key_;
  SlotMemory memory_;
  std::unique_ptr<Channel> channel_;
  std::vector<void*> requests_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  Breakage breakage_;
};

/// Accepts connections, reads who they are from, and gives them to their receivers.
///
/// Guests are connections that have not said yet who they are. Their number is bounded: where more come, the oldest is
/// dropped. All ranks together have room to connect at the same time.
class AcceptTask : public progress::Task {
 public:
  explicit AcceptTask(const Net& net);
  ~AcceptTask() override;
  Result<bool> progress() override;
  bool idle() const override { return true; }
  /// A receiver now waits for its sender. Any thread.
  void expect(const Key& key, std::shared_ptr<ReceiveTask> receiver);

 private:
  using Who = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // rank, lane, channel, protocol
  struct Guest {
    std::unique_ptr<NetHello> hello;  // outlives the channel, which may still receive into it
    std::unique_ptr<Channel> channel;
    void* request = nullptr;
  };
  struct Entrance {
    uint32_t device = 0;
    void* listener = nullptr;
    void* state = nullptr;  // of an accept under way
  };
  Result<bool> accept(Entrance& entrance);
  bool read_hellos();
  bool is_friend(const NetHello& hello) const;
  Result<bool> hand_over();

  const Net& net_;
  size_t most_guests() const { return net_.peer_count() * net_.options().keys.size() + kMoreGuests; }
  static constexpr size_t kMoreGuests = 64;

  std::vector<Entrance> entrances_;                  // one per device
  std::deque<Guest> guests_;                         // connected, not yet introduced; oldest first
  std::map<Who, std::unique_ptr<Channel>> arrived_;  // introduced, not yet expected
  std::mutex mutex_;                                 // guards expected_
  std::map<Who, std::shared_ptr<ReceiveTask>> expected_;
};

}  // namespace tutti::transport
