// SPDX-License-Identifier: Apache-2.0
// The receiving end of a connection with rails (rails.h).
#pragma once

#include <array>
#include <vector>

#include "looks.h"
#include "rails.h"
#include "shared.h"
#include "tutti/sdk/network.h"

namespace tutti::net_socket {

/// Thread-compatible.
class RailReceiver : public sdk::Connection, private Rails::User {
 public:
  static constexpr uint32_t kMaxGroup = 8;

  RailReceiver(std::vector<RailStream> streams, const Shared& shared);

  Status send(const void* data, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& out) override;
  /// kInvalidArgument for too large a group.
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& out) override;
  /// kRemote if all rails are lost or the peer is gone, kMismatch if a message was too long or the peer breaks the
  /// protocol.
  Status test(sdk::Request& tested, bool& done, uint64_t* bytes) override;

 private:
  static constexpr size_t kMaxRequests = 64;

  /// A message of a receive.
  struct Message {
    bool open = false;
    uint8_t* address = nullptr;
    uint64_t size = 0;  ///< of the buffer; at the end, of the message
    uint32_t tag = 0;
    uint64_t number = 0;
    uint8_t parts = 0;    ///< 0: none has come
    uint8_t arrived = 0;  ///< a bit for each part
    uint64_t total = 0;
    uint64_t bytes = 0;  ///< of the parts that have arrived
  };
  struct Receive : sdk::Request {
    bool used = false;
    uint32_t count = 0;
    uint32_t open = 0;  ///< messages that are not whole
    std::array<Message, kMaxGroup> messages{};
  };
  static_assert(kMaxRails <= 8);

  Status take(Rail& rail, const Frame& frame) override;
  Status arrived(Rail& rail, const Frame& frame) override;
  void replace(Rail& lost) override;
  Status take_data(Rail& rail, const Frame& frame);
  uint64_t progress();
  Message* find(const Frame& frame);
  void announce(uint32_t place, const Message& message);

  const Shared& shared_;
  std::array<Receive, kMaxRequests> receives_;
  uint64_t next_number_ = 0;
  std::array<uint64_t, kMaxRails> frames_{};        // of data that have arrived, by rail
  std::array<uint64_t, kMaxRails> acknowledged_{};  // of them
  Looks looks_;
  Rails rails_;  // ends first
};

}  // namespace tutti::net_socket
