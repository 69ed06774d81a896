// SPDX-License-Identifier: Apache-2.0
// The progress engine's tasks behind a network connection: accept, send slots, receive slots.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "transport/channel.h"
#include "transport/failover.h"
#include "transport/link_state.h"
#include "transport/net.h"
#include "transport/receipts.h"

namespace tutti::transport {

/// Follows the bytes of a slot on the network. The receiver compares it with the message that the plugin reports, so
/// that a message which a plugin cuts, lengthens, loses or repeats is an error.
struct MessageEnd {
  uint64_t step;   ///< number of the message on its connection, from 0
  uint64_t bytes;  ///< before this record
};
static_assert(sizeof(MessageEnd) == 16);

/// The same with check.data.
struct HashedEnd {
  uint64_t hash;  ///< XXH3 of the message's bytes, with the step as seed
  MessageEnd end;
};
static_assert(sizeof(HashedEnd) == 24);

/// Counters and slots of one network connection, in this process. Each slot has room for a statement of Receipts and an
/// end.
class SlotMemory {
 public:
  /// Bytes of the longest message.
  static uint64_t message_bytes(const tutti_slot_layout& layout) {
    return layout.slot_stride + sizeof(uint64_t) + sizeof(HashedEnd);
  }

  /// `hashes`: check.data. `receipts`: messages carry their statements; null: they carry none.
  SlotMemory(const tutti_slot_layout& layout, uint32_t peer, tutti_bell* peer_bell, bool hashes,
             std::shared_ptr<Receipts> receipts = nullptr);
  tutti_connection& connection() { return connection_; }
  uint8_t* slot(uint64_t step) const;
  /// Appends the end to a slot that an executor filled. Returns the bytes of the message.
  uint64_t seal(uint64_t step);
  /// Writes the farewell to a free slot: the last message of a connection, whose sender leaves in good order. Returns
  /// the bytes of the message.
  uint64_t write_farewell(uint64_t step);
  /// Whether a message of `bytes` bytes is a farewell.
  bool is_farewell(uint64_t step, uint64_t bytes) const;
  /// Takes the end off a message of `bytes` bytes that the network delivered. Empty: it is whole; else the difference.
  std::string open(uint64_t step, uint64_t bytes);
  void* begin() const { return connection_.slots; }
  uint64_t bytes() const { return connection_.slot_count * connection_.slot_stride; }
  uint64_t slots() const { return connection_.slot_count; }
  uint64_t load_tail() const;
  uint64_t load_head() const;
  void store_tail(uint64_t value);
  void store_head(uint64_t value);

 private:
  struct Free {
    void operator()(uint8_t* memory) const;
  };
  uint64_t statement_bytes() const { return receipts_ == nullptr ? 0 : sizeof(uint64_t); }
  uint64_t end_bytes() const { return hashes_ ? sizeof(HashedEnd) : sizeof(MessageEnd); }
  /// The difference in the message's bytes or its end; empty: there is none.
  std::string difference(uint64_t step, uint64_t bytes, const HashedEnd& end) const;
  uint64_t& size_of_slot(uint64_t step) { return sizes_[step & (connection_.slot_count - 1)]; }

  std::unique_ptr<uint8_t, Free> memory_;
  std::vector<uint64_t> sizes_;
  const bool hashes_;
  const std::shared_ptr<Receipts> receipts_;
  tutti_connection connection_{};
};

/// The sends, or the receives, of a connection. Message n of the connection is in slot n, modulo the number of slots.
class SlotRequests {
 public:
  explicit SlotRequests(SlotMemory& memory) : memory_(memory), requests_(memory.connection().slot_count) {}
  /// Begins to send all filled slots, until the network takes no more. Returns whether there was one.
  Result<bool> post_sends(Channel& channel, void* registration);
  Status complete_sends(Channel& channel);
  /// Begins to send the farewell once, after all filled slots, when a slot is free. Returns whether it began.
  Result<bool> post_farewell(Channel& channel, void* registration);
  bool has_farewell() const { return has_farewell_; }  ///< the sender has begun to send it, or the receiver has it
  /// Begins to receive into all free slots, until the network takes no more. Returns whether there was one. Nothing
  /// comes after a farewell.
  Result<bool> post_receives(Channel& channel, void* registration);
  /// Gives the messages that have arrived to the executors, up to the first failure, which it returns. kInternal: a
  /// message is not the message that was sent.
  Status take_arrived(Channel& channel, tutti_bell& executors);
  /// On a new channel: the next message is `next`.
  void restart(uint64_t next) { posted_ = completed_ = next; }

  uint64_t posted() const { return posted_; }        ///< messages before this one have a request
  uint64_t completed() const { return completed_; }  ///< requests before this one are complete
  /// Messages before this one may have been sent, on any channel: a send that fails may have sent its message.
  uint64_t most_posted() const { return most_posted_; }

 private:
  void*& request(uint64_t step) { return requests_[step & (requests_.size() - 1)]; }
  Status complete_receives(Channel& channel);

  SlotMemory& memory_;
  std::vector<void*> requests_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t most_posted_ = 0;
  bool has_farewell_ = false;
};

/// A task with one end of a connection of slots.
class SlotTask : public progress::Task {
 public:
  virtual tutti_connection& connection() = 0;
};

/// Sends this rank's filled slots to one receiver.
class SendTask : public SlotTask {
 public:
  SendTask(const Net& net, const Key& key, uint32_t device, const tutti_net_handle& handle, tutti_bell* engine_bell);
  Result<bool> progress() override;
  bool idle() const override;
  tutti_connection& connection() override { return memory_.connection(); }

 private:
  Result<bool> advance();
  Result<bool> move();
  bool has_unsent() const { return requests_.completed() < memory_.load_tail(); }
  bool owes_farewell() const;

  const Net& net_;
  Key key_;
  Dial dial_;
  LinkState state_;
  SlotMemory memory_;
  std::unique_ptr<Channel> channel_;
  void* registration_ = nullptr;
  SlotRequests requests_{memory_};
  Breakage breakage_;
};

/// Receives one sender's slots.
class ReceiveTask : public SlotTask, public Awaiter {
 public:
  ReceiveTask(const Net& net, const Key& key, tutti_bell* engine_bell);
  Result<bool> progress() override;
  bool idle() const override { return true; }
  bool serves(uint32_t peer) const override { return key_.peer == peer; }
  tutti_connection& connection() override { return memory_.connection(); }
  Status attach(std::unique_ptr<Channel> channel) override;

 private:
  Status connect();
  Result<bool> move();

  const Net& net_;
  Key key_;
  LinkState state_;
  SlotMemory memory_;
  ChannelHandOver attached_;
  std::unique_ptr<Channel> channel_;
  void* registration_ = nullptr;
  SlotRequests requests_{memory_};
  Breakage breakage_;
};

/// Accepts connections, reads the rank that they come from, and gives them to their receivers.
///
/// Guests are connections that have not identified themselves yet. Their number is bounded: if more come, the oldest is
/// dropped. All ranks together have room to connect at the same time.
///
/// While no receiver waits for its sender, the listeners are asked every kLookInterval only. Strangers then wait in the
/// queue of the network, and cost this rank little.
class AcceptTask : public progress::Task {
 public:
  explicit AcceptTask(const Net& net);
  ~AcceptTask() override;
  Result<bool> progress() override;
  bool idle() const override { return true; }
  /// A receiver now waits for its sender. Any thread.
  void expect(const Key& key, std::shared_ptr<Awaiter> receiver);
  /// See Net::expect() and Net::hurry(). Any thread.
  void expect(const Key& key, Purpose purpose, uint32_t home, std::shared_ptr<Rejoiner> rejoiner);
  void hurry(bool begins) { hurried_.fetch_add(begins ? 1 : -1, std::memory_order_relaxed); }

 private:
  // rank, traffic, channel, protocol, purpose, home
  using Who = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t, Purpose, uint32_t>;
  struct Guest {
    uint32_t device = 0;              // device of this rank through which it came
    std::unique_ptr<NetHello> hello;  // outlives the channel, which may still receive into it
    std::unique_ptr<Channel> channel;
    void* registration = nullptr;
    void* request = nullptr;
  };
  struct Entrance {
    uint32_t device = 0;
    void* listener = nullptr;
    void* state = nullptr;  // state of an accept under way
  };
  Result<bool> accept(Entrance& entrance);
  static Who who_of(const Key& key, Purpose purpose, uint32_t home);
  Result<bool> read_hellos();
  /// The failure of this rank that a guest's failure is. None, and a line in the log, if the peer is gone: the guest
  /// may be a stranger, or a connection that gave up.
  Status failure_of_guest(const Status& why) const;
  bool is_friend(const NetHello& hello) const;
  Result<bool> hand_over();
  Result<bool> hand_over(const Who& who, Arrival& arrival);

  const Net& net_;
  size_t most_guests() const {
    return homes() * kPurposeCount * net_.peer_count() * net_.options().keys.size() + kMoreGuests;
  }
  /// Networks whose connections may come here.
  size_t homes() const { return net_.options().failover == nullptr ? 1 : net_.options().failover->nets().size(); }
  static constexpr size_t kMoreGuests = 64;
  static constexpr std::chrono::milliseconds kLookInterval{500};
  bool asks(const Entrance& entrance, std::chrono::steady_clock::time_point now) const;

  progress::EntryMark mark_;
  std::vector<Entrance> entrances_;  // one per device
  std::deque<Guest> guests_;         // connected, not yet introduced; oldest first
  std::map<Who, Arrival> arrived_;   // introduced, not yet expected
  std::chrono::steady_clock::time_point next_look_{};
  std::mutex mutex_;  // guards expected_ and rejoiners_
  std::map<Who, std::shared_ptr<Awaiter>> expected_;
  std::map<Who, std::shared_ptr<Rejoiner>> rejoiners_;
  std::atomic<int> hurried_{0};            // relaxed: a late look does no harm
  std::atomic<size_t> expected_count_{0};  // relaxed: a late look does no harm
};

}  // namespace tutti::transport
