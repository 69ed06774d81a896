// SPDX-License-Identifier: Apache-2.0
// A connection of a network plugin, as both ends use it: its making, its memory, its messages, and its end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "progress/entry_watch.h"
#include "transport/heap.h"
#include "transport/net.h"

namespace tutti::transport {

/// The first message on every network connection. It names the sender, and the connection of the communicator.
struct NetHello {
  uint64_t communicator;
  uint32_t rank;
  uint32_t traffic;
  uint32_t channel;
  uint32_t protocol;
  uint32_t purpose;     ///< Purpose
  uint32_t home;        ///< Introduction
  uint32_t generation;  ///< Introduction
  uint32_t device;      ///< the device of the sender
  uint8_t reserved[24];
};
static_assert(sizeof(NetHello) == 64);

/// The content of a connection: the messages of its sender, the acknowledgements of their receiver, or the news that
/// the receiver has lost its connections.
enum class Purpose : uint32_t { kData = 0, kAcknowledgements = 1, kLoss = 2 };
inline constexpr uint32_t kPurposeCount = 3;

/// The role of a connection. Without fail-over all roles are equal.
struct Introduction {
  Purpose purpose = Purpose::kData;
  uint32_t home = 0;        ///< index of the network whose connection this is, perhaps by a different network
  uint32_t generation = 0;  ///< how often the connection has been made again
};

/// A buffer of one message.
struct MessagePart {
  void* address = nullptr;
  uint64_t bytes = 0;
  uint32_t tag = 0;
  void* registration = nullptr;
};

/// One connection of the plugin. Closes it when destroyed, with all registrations; requests end with it.
/// Threads of a channel: one at a time, as the plugin's [progress] entries demand.
class Channel {
 public:
  /// `ends`: between which ranks and devices, for messages.
  Channel(const Net& net, void* connection, std::string ends);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void set_ends(std::string ends);
  const std::string& ends() const { return ends_; }
  /// Registers memory for messages of this connection, until deregister_memory() or the end of the connection.
  Result<void*> register_memory(const MessageMemory& memory);
  void deregister_memory(void* registration);
  /// Null request: not now.
  Result<void*> send(const MessagePart& part);
  Result<void*> recv(const MessagePart& part) { return recv({&part, 1}); }
  /// Several parts need TUTTI_NET_CAP_GROUPED_RECV, and different tags.
  Result<void*> recv(std::span<const MessagePart> parts);
  /// Makes a received message in memory of a GPU visible to the GPU. Null request: it is visible.
  Result<void*> flush(const MessagePart& part);
  /// `bytes`: of each message of a receive; null for other requests.
  Result<bool> test(void* request, uint64_t* bytes);
  /// kInternal: the messages that the network delivers are not those that were sent. `difference` says how.
  Status mismatch(std::string_view difference) const;

 private:
  Status failure(int32_t code) const;

  const Net& net_;
  void* connection_;
  std::string ends_;
  progress::EntryMark mark_;
  std::vector<void*> registrations_;  // registrations that are not null
};

/// Makes a connection to a peer. The first message names this rank. One thread at a time: the task that dials.
class Dial {
 public:
  Dial(const Net& net, const Key& key, uint32_t device, const tutti_net_handle& handle, const Introduction& as = {});
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;
  /// The connection, when it is made and the first message was sent; before that null. Does not block.
  Result<std::unique_ptr<Channel>> advance();
  /// Whether the connection stands, but the first message is under way.
  bool introduces() const { return channel_ != nullptr; }

 private:
  Result<bool> connect();

  const Net& net_;
  Key key_;
  uint32_t device_;
  tutti_net_handle handle_;
  progress::EntryMark mark_;
  NetHello hello_{};
  void* state_ = nullptr;
  std::unique_ptr<Channel> channel_;
  void* registration_ = nullptr;
  void* request_ = nullptr;
};

/// Something that waits for a peer's connection.
class Awaiter {
 public:
  virtual ~Awaiter() = default;
  /// The peer has connected. Called within the engine's round.
  virtual Status attach(std::unique_ptr<Channel> channel) = 0;
};

/// A channel on its way from the thread that accepts connections to the thread of a task.
class ChannelHandOver {
 public:
  ~ChannelHandOver() { take(); }
  void give(std::unique_ptr<Channel> channel) {
    delete channel_.exchange(channel.release(), std::memory_order_acq_rel);
  }
  /// Null: none has come.
  std::unique_ptr<Channel> take() {
    if (channel_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return std::unique_ptr<Channel>(channel_.exchange(nullptr, std::memory_order_acq_rel));
  }

 private:
  std::atomic<Channel*> channel_{nullptr};  // owned
};

/// A connection that broke. This is a failure of the communicator, unless the peer has left in good order and no call
/// waits for it. The hub knows more than a connection: it may report that the peer has left, or died. The verdict
/// leaves it a moment for that. One thread at a time: the task of the connection.
class Breakage {
 public:
  void begin(Status failure);
  /// The peer has said that it leaves, and all data of the connection is here. A call that waits for the peer may wait
  /// for data of a different connection. The hub tells whether the peer has left without its part in the call. The
  /// break is a failure only while a call waits for the peer, the hub cannot tell any more, and no other connection
  /// from the peer stands.
  void excuse() { is_excused_ = true; }
  bool broken() const { return !failure_.ok(); }
  /// The failure, after the decision that it is a failure. `undelivered`: this rank has data for the peer. `grace`: the
  /// time in which the failure may turn out to be none.
  Status verdict(const Net& net, uint32_t peer, bool undelivered, std::chrono::nanoseconds grace);
  /// The same with the grace of the network.
  Status verdict(const Net& net, uint32_t peer, bool undelivered) {
    return verdict(net, peer, undelivered, net.options().break_grace);
  }
  /// Whether a connection to such a peer may break.
  static bool is_harmless(const Net::Standing& peer, bool undelivered);

 private:
  Status failure_;
  std::optional<std::chrono::steady_clock::time_point> harmful_since_;  // begin of the grace; none: no harm is seen
  bool is_excused_ = false;
};

}  // namespace tutti::transport
