// SPDX-License-Identifier: Apache-2.0
// The progress engine's tasks behind a network connection: accept, send slots, receive slots.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
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

/// Counters and slots of one network connection, in this process.
class SlotMemory {
 public:
  SlotMemory(const tutti_slot_layout& layout, uint32_t peer, tutti_bell* peer_bell);
  tutti_connection& connection() { return connection_; }
  uint8_t* slot(uint64_t step) const;
  uint64_t size_of_slot(uint64_t step) const { return sizes_[step & (connection_.slot_count - 1)]; }
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
  std::unique_ptr<uint8_t, Free> memory_;
  std::vector<uint64_t> sizes_;
  tutti_connection connection_{};
};

/// A connection of the plugin with its registered slot memory and the requests posted on it, one per slot.
class Channel {
 public:
  Channel(const Net& net, void* connection) : net_(net), connection_(connection) {}
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Registers the memory of the requests that follow, in place of what was registered before.
  Status register_memory(void* address, uint64_t bytes, uint32_t peer);
  /// Null request: not now.
  Result<void*> send(const void* address, uint64_t bytes, uint32_t peer);
  Result<void*> recv(void* address, uint64_t bytes, uint32_t peer);
  Result<bool> test(void* request, uint64_t* bytes, uint32_t peer);

 private:
  const Net& net_;
  void* connection_;
  void* registration_ = nullptr;
};

/// A connection that broke. The peer may have left in good order, or died, which the hub tells better than a socket; so
/// it becomes a failure only if data is still to go out some time later.
class Breakage {
 public:
  /// Takes a kRemote failure and returns ok; passes others on.
  Status absorb(const Status& failure);
  bool broken() const { return !failure_.ok(); }
  /// The failure, once nobody has told a better reason for a while.
  Status overdue() const;

 private:
  static constexpr std::chrono::seconds kGrace{2};
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
    void* listener = nullptr;
    void* state = nullptr;  // of an accept under way
  };
  Result<bool> accept(Entrance& entrance);
  Result<bool> read_hellos();
  Result<bool> hand_over();

  const Net& net_;
  std::vector<Entrance> entrances_;                  // one per device
  std::vector<Guest> guests_;                        // connected, not yet introduced
  std::map<Who, std::unique_ptr<Channel>> arrived_;  // introduced, not yet expected
  std::mutex mutex_;                                 // guards expected_
  std::map<Who, std::shared_ptr<ReceiveTask>> expected_;
};

}  // namespace tutti::transport
