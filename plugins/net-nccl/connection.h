// SPDX-License-Identifier: Apache-2.0
// One connection. NCCL's plugins may take few requests at once, or none now, so messages wait here until the plugin
// takes them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "library.h"
#include "tutti/sdk/network.h"

namespace tutti::net_nccl {

/// A send, a receive or a flush. Lives in its connection's pool.
struct Message : sdk::Request {
  enum class State { kFree, kWaiting, kPosted, kDone, kFailed };

  State state = State::kFree;
  uint32_t buffers = 1;   ///< number of a receive's buffers
  uint32_t per_unit = 1;  ///< buffers of one request of the plugin
  uint32_t units = 1;     ///< requests of the plugin
  uint32_t posted = 0;    ///< units that the plugin has taken
  uint32_t done = 0;      ///< a bit per unit that is complete
  bool has_tags = true;   ///< a flush has none
  std::array<void*, kMostBuffers> data{};
  std::array<uint64_t, kMostBuffers> bytes{};  ///< room of the buffer; of a complete receive: length of the message
  std::array<int, kMostBuffers> tags{};
  std::array<void*, kMostBuffers> regions{};
  std::array<void*, kMostBuffers> requests{};  ///< by unit
  Status failure;
};

/// The tags of messages that later messages must not overtake.
class BusyTags {
 public:
  /// `joined`: all tags count as one.
  explicit BusyTags(bool joined) : joined_(joined) {}
  bool hold(const Message& message) const;
  void add(const Message& message);

 private:
  const bool joined_;
  std::vector<int> tags_;
};

class Connection;

/// The connections of a context with messages that wait for the plugin. The host may test requests of one connection
/// until a peer answers, so each test also offers the messages of the other connections. Threads: any.
class WaitingRoom {
 public:
  void enter(Connection& connection);
  void leave(Connection& connection);
  void offer();

 private:
  std::mutex mutex_;  // guards connections_; taken before or after the mutex of a connection, see offer()
  std::vector<Connection*> connections_;
  std::atomic<size_t> count_{0};
};

class Connection : public sdk::Connection {
 public:
  enum class Role { kSender, kReceiver };

  /// Owns `comm`.
  Connection(Library& library, const Sink& sink, WaitingRoom& room, const Device& device, void* comm, Role role);
  ~Connection() override;

  Result<void*> register_memory(void* address, uint64_t bytes, uint32_t memory) override;
  Result<void*> register_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd) override;
  Status deregister_memory(void* registration) override;
  Status send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) override;
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& request) override;
  Status flush(uint32_t count, void* const* addresses, const uint64_t* bytes, void* const* registrations,
               sdk::Request*& request) override;
  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override;

  /// Offers the waiting messages to the plugin. True: none waits any more.
  bool offer_waiting();

 private:
  static constexpr size_t kMostMessages = 128;

  bool sends() const { return role_ == Role::kSender; }
  std::string doing(const char* entry) const;
  Message* take();
  void release(Message& message);
  Status fill(Message& message, uint32_t buffer, void* address, uint64_t bytes, uint32_t tag, void* registration);
  Status hand_in(Message& message, sdk::Request*& request);
  Result<void*> scratch_region();
  void advance(const Message& wanted);
  void enter_or_leave();
  void post_waiting();
  bool post_units(Message& message);
  void test_posted(const Message* last);
  void test_units(Message& message);
  bool take_lengths(Message& message, uint32_t unit, const std::array<int, kMostBuffers>& lengths);
  static void fail(Message& message, Status why);

  Library& library_;
  Adapter& adapter_;
  const Sink& sink_;
  WaitingRoom& room_;
  const std::string device_;
  const uint32_t most_buffers_;  ///< limit of one request of the plugin
  void* const comm_;
  const Role role_;
  std::mutex mutex_;  // guards all below, but not regions: threads of other connections offer waiting messages
  bool is_in_room_ = false;
  std::deque<Message> pool_;
  std::vector<Message*> free_;
  std::vector<Message*> waiting_;  ///< not taken by the plugin yet, oldest first
  std::vector<Message*> posted_;   ///< oldest first
  uint64_t scratch_ = 0;           ///< stands for the buffer of a message without bytes
  void* scratch_registration_ = nullptr;
};

}  // namespace tutti::net_nccl
