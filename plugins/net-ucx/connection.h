// SPDX-License-Identifier: Apache-2.0
// One connection: tagged messages of UCP in one direction, and a line that tells when the other side has gone.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "shared.h"
#include "tutti/sdk/network.h"
#include "wire.h"

namespace tutti::net_ucx {

/// A posted send or receive. Lives in its connection's pool.
struct Message : sdk::Request {
  bool used = false;
  bool ended = false;  ///< UCX has done with it
  ucs_status_t status = UCS_OK;
  uint64_t room = 0;   ///< bytes of the buffer
  uint64_t bytes = 0;  ///< of the message, once received
  uint32_t tag = 0;
  void* operation = nullptr;  ///< UCX's, until it ends
  Ucx* ucx = nullptr;
};

/// The result of ucp_mem_map.
struct Registration {
  ucp_mem_h memory = nullptr;
};

class Connection : public sdk::Connection {
 public:
  /// `id`: the receiver's number of this connection.
  Connection(Shared& shared, Fd line, uint32_t id, bool sends);
  /// Tells the other side how many messages were sent, and ends all that UCX does with buffers of this connection.
  ~Connection() override;

  /// Reports events of the line. Before the connection is handed out.
  Status watch_line() { return shared_.watch(line_, stir_); }
  /// A sender's endpoint to the receiver's worker, before the connection is handed out.
  Status open_endpoint(std::span<const std::byte> worker);

  Result<void*> register_memory(void* address, uint64_t bytes, uint32_t memory) override;
  Status deregister_memory(void* registration) override;
  Status send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) override;
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& request) override;
  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override;

 private:
  static constexpr size_t kMostMessages = 128;

  static void endpoint_failed(void* connection, ucp_ep_h endpoint, ucs_status_t status);
  Message* take_message(uint64_t bytes, uint32_t tag);
  Status posted(Message& message, ucs_status_ptr_t operation, sdk::Request*& request);
  bool is_next_of_its_tag(const Message& message) const;
  void release(Message& message);
  void look_at_line();
  void judge_silence();
  void lose(const std::string& why);
  Status failure_of(const Message& message);
  bool has_operations() const;
  bool quiesce();
  void close_sender();
  void close_receiver();
  void abandon();
  void discard_unexpected();
  uint64_t ucp_tag(uint32_t tag) const { return (uint64_t{id_} << 32) | tag; }

  Shared& shared_;
  Fd line_;
  Stir stir_;
  const uint32_t id_;
  const bool sends_;
  ucp_ep_h endpoint_ = nullptr;  // of a sender
  std::string ends_;             // "10.0.0.1:4000 to 10.0.0.2:4001", for messages
  std::array<Message, kMostMessages> messages_;
  std::deque<Message*> order_;  // in use, in the order posted
  uint64_t round_ = 0;
  uint64_t completed_ = 0;  // messages, without failures

  Status lost_;        // not ok: nothing more completes
  Farewell farewell_;  // farewell of the peer
  size_t farewell_read_ = 0;
  std::optional<Clock::time_point> gone_;  // since when the other side has closed the line
  std::string gone_because_;
};

}  // namespace tutti::net_ucx
