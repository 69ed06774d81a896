// SPDX-License-Identifier: Apache-2.0
// The sending end of a connection with rails (rails.h).
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "looks.h"
#include "rails.h"
#include "shared.h"
#include "tutti/sdk/network.h"

namespace tutti::net_socket {

/// Thread-compatible.
class RailSender : public sdk::Connection, private Rails::User {
 public:
  RailSender(std::vector<RailStream> streams, const Shared& shared);

  Status send(const void* data, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& out) override;
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& out) override;
  /// kRemote if all rails are lost or the peer is gone, kMismatch if the peer breaks the protocol.
  Status test(sdk::Request& tested, bool& done, uint64_t* bytes) override;

 private:
  static constexpr size_t kMaxRequests = 64;
  static constexpr uint64_t kMaxKept = 16 << 10;  // bytes of a message that may be kept
  static constexpr size_t kMaxPosted = 1024;      // receives of the other end that no message has taken

  struct Send : sdk::Request {
    bool used = false;
    bool waits = false;    ///< for a receive of the other end
    uint32_t open = 0;     ///< frames that are not acknowledged
    Rail* rail = nullptr;  ///< of the only frame; null: there are several
    const uint8_t* data = nullptr;
    uint64_t bytes = 0;
    uint32_t tag = 0;
    bool is_done() const { return !waits && open == 0; }
  };

  Status take(Rail& rail, const Frame& frame) override;
  Status arrived(Rail& rail, const Frame& frame) override;
  void replace(Rail& lost) override;
  uint64_t progress();
  void match();
  void dispatch(uint32_t place, const Frame& receive);
  void look(Send& send);

  const Shared& shared_;
  std::array<Send, kMaxRequests> sends_;
  std::deque<uint32_t> waiting_;  // places of sends without a receive, in the order of sending
  std::deque<Frame> receives_;    // posted by the other end, without a message
  uint64_t next_receive_ = 0;     // number
  bool has_news_ = false;         // a receive has come
  Looks looks_;
  Rails rails_;  // ends first
};

}  // namespace tutti::net_socket
