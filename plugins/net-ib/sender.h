// SPDX-License-Identifier: Apache-2.0
// The sending end of a connection.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "link.h"
#include "memory.h"
#include "tutti/sdk/network.h"

namespace tutti::net_ib {

inline constexpr uint32_t kMaxRequests = 64;

/// Writes each message to the memory of a receive that the other end has announced with the same tag. A message that
/// has no receive yet waits here. A send is complete when the device of the peer has acknowledged it.
class Sender : public sdk::Connection, private Link::User {
 public:
  explicit Sender(std::unique_ptr<Link> link);

  Result<void*> register_memory(void* address, uint64_t bytes, uint32_t memory) override;
  Result<void*> register_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd) override;
  Status deregister_memory(void* registration) override;
  Status send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) override;
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& request) override;
  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override;

 private:
  struct Send : sdk::Request {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint32_t tag = 0;
    const Registered* registered = nullptr;
    Record record;       ///< announces the receive, once posted
    uint32_t parts = 0;  ///< at most so many
    uint32_t open = 0;   ///< parts that the peer has not acknowledged
    bool posted = false;
    bool used = false;
    bool done() const { return posted && open == 0; }
  };

  /// A part of a send, whose write went over a rail that broke.
  struct Undecided {
    uint32_t rail = 0;
    uint32_t value = 0;  ///< value in the work request's number
  };

  Status take(uint32_t immediate, uint32_t bytes) override;
  void complete(Work work, uint32_t value) override;
  void abandon(uint32_t rail, Work work, uint32_t value) override;
  void report(Report& out) const override;
  Status resume(uint32_t rail, const Report& received) override;

  Send* take_request();
  void progress();
  /// Posts the parts that are repeated, then the sends for which there is a record, in their order.
  Status post_all();
  Status post_matching();
  Status post(Send& send, const Record& record);
  Status post_part(const Link::QueuePairRef& queue_pair, Send& send, uint32_t part);
  Status report_too_long(const Link::QueuePairRef& queue_pair, Send& send);

  std::unique_ptr<Link> link_;
  std::array<Send, kMaxRequests> requests_;
  std::vector<Undecided> undecided_;
  std::deque<uint32_t> repeated_;  // values of work requests
  std::deque<Send*> waiting_;      // for a record, in the order posted
  std::deque<Record> records_;     // without a send, in the order announced
  uint32_t next_record_ = 0;       // sequence number
};

}  // namespace tutti::net_ib
