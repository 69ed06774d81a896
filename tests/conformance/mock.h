// SPDX-License-Identifier: Apache-2.0
// The objects of the mock network, and its wire: frames on Unix stream sockets.
#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "conformance/faults.h"
#include "tutti/sdk/plugin.h"

namespace tutti::mock {

inline constexpr uint32_t kMagic = 0x6d6f636b;
inline constexpr size_t kEarliest = 4;  // messages before this one are whole: connections stand with most faults
inline constexpr size_t kSwappedMessage = 15;

struct Frame {
  uint32_t magic = kMagic;
  uint32_t tag = 0;
  uint64_t bytes = 0;
};

struct Part {
  uint8_t* address = nullptr;
  uint64_t room = 0;
  uint32_t tag = 0;
  uint64_t got = 0;
  bool taken = false;  ///< a message has begun to arrive in it
  bool full = false;
};

struct Connection;
struct Request {
  Connection* connection = nullptr;
  bool is_send = false;
  bool is_done = false;
  std::vector<Part> parts;
  Frame frame;
  std::vector<uint8_t> copy;  ///< copy of a message that the fault changes
  uint64_t moved = 0;         ///< bytes of the frame and the message that were sent
  bool too_long = false;
};

/// Registered memory. Memory of a dmabuf cannot be accessed at its address.
struct Registration {
  uint8_t* begin = nullptr;
  uint8_t* mapped = nullptr;  ///< the memory of a dmabuf, in this process
  std::vector<uint8_t> held;  ///< received data of a dmabuf before its flush; bytes of the registration

  uint64_t offset(const void* address) const {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(address) - begin);
  }
};

struct Context;
struct Connection {
  Context* context = nullptr;
  int fd = -1;
  size_t messages = 0;  ///< posted sends
  bool is_broken = false;
  std::deque<Request*> sends;     ///< not yet done, oldest first
  Request* held = nullptr;        ///< a send that follows the next send: a fault
  std::deque<Request*> receives;  ///< not yet done, oldest first
  std::set<Request*> all;
  Frame frame;  ///< header of the message that arrives
  uint64_t frame_bytes = 0;
  Part* into = nullptr;
  Request* into_request = nullptr;
  uint64_t arrived = 0;
  bool end_seen = false;
};

struct Listener {
  Context* context = nullptr;
  int fd = -1;
  std::string path;
  std::vector<int> guests;  ///< sockets that have not said the magic yet
};

struct Connecting {
  int fd = -1;
  bool leaks = false;
};

struct Network {
  sdk::Host host;
  Fault fault = Fault::kNone;
  bool takes_dmabufs = false;
  uint32_t asked = 0;
};

struct Context {
  Network* network = nullptr;
  int events = -1;
  std::set<Connection*> connections;
  std::set<Listener*> listeners;
  std::vector<Connection*> ghosts;  ///< closed, but still used: a fault

  bool has(Fault fault) const { return network->fault == fault; }
  int32_t fail(int32_t code, const std::string& text) const {
    if (has(Fault::kNoReason)) return code;
    return network->host.fail(Status(static_cast<Code>(code), text));
  }
};

// Entries for memory.
int32_t register_memory(void* connection, void* address, uint64_t bytes, uint32_t memory, void** registration);
int32_t register_dmabuf(void* connection, void* address, uint64_t bytes, uint64_t offset, int32_t fd,
                        void** registration);
int32_t deregister_memory(void* connection, void* registration);
int32_t flush(void* connection, uint32_t count, void* const* addresses, const uint64_t* bytes,
              void* const* registrations, void** request);
/// Where a send reads the data of `address`, and where a receive writes it. `registration` may be null.
uint8_t* source_of(const void* address, const void* registration);
uint8_t* target_of(void* address, void* registration);

/// Queues a send, with the faults that concern whole messages.
void queue(Connection& connection, Request* request);
/// Sends as much as the socket takes.
void push_all(Connection& connection);
/// Sends and receives without blocking.
void progress(Connection& connection);

}  // namespace tutti::mock
