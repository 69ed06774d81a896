// SPDX-License-Identifier: Apache-2.0
// The receiving end of a connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "link.h"
#include "memory.h"
#include "tutti/sdk/network.h"

namespace tutti::net_ib {

/// Announces each receive to the sender by a record, which it writes to the sender's mailbox by RDMA. The sender then
/// writes the message straight to the memory of the receive.
///
/// Records are held back while the sender has as many announced receives of the same tag left, so that a stream of
/// small messages costs one record write for several messages.
class Receiver : public sdk::Connection, private Link::User {
 public:
  static constexpr uint32_t kMaxGroup = 8;
  static constexpr uint32_t kMaxRequests = 64;

  explicit Receiver(std::unique_ptr<Link> link);

  Result<void*> register_memory(void* address, uint64_t bytes, uint32_t memory) override;
  Result<void*> register_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd) override;
  Status deregister_memory(void* registration) override;
  Status send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) override;
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& request) override;
  /// Reads the last byte of the last message, on each live rail, by a queue pair that is connected to itself.
  Status flush(uint32_t count, void* const* addresses, const uint64_t* bytes, void* const* registrations,
               sdk::Request*& request) override;
  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override;

 private:
  struct Receive : sdk::Request {
    bool used = false;
    uint32_t count = 0;  ///< messages of the group
    uint32_t open = 0;   ///< messages or reads that are still to come
    std::array<uint64_t, kMaxGroup> arrived{};
    Status failure;  ///< failure of this request alone
  };
  /// One message of a receive. Its record has the same index in the mailbox.
  struct Entry {
    Receive* receive = nullptr;  ///< null: free
    uint32_t index = 0;          ///< in the group
    uint16_t parts = 0;          ///< a bit for each part that has arrived
    uint64_t bytes = 0;          ///< number that has arrived
  };

  Status take(uint32_t immediate, uint32_t bytes) override;
  void complete(Work work, uint32_t value) override;
  void abandon(uint32_t rail, Work work, uint32_t value) override;
  void report(Report& out) const override;
  Status resume(uint32_t rail, const Report& received) override;

  Receive* take_request();
  bool has_room(uint32_t entries) const;
  void add_entry(Receive& receive, uint32_t index, void* address, uint64_t bytes, const Registered* registered,
                 uint32_t tag);
  void progress();
  void refuse(Entry& entry, uint32_t place);
  void finish(Entry& entry);
  bool may_wait() const;
  Status announce();

  std::unique_ptr<Link> link_;
  std::array<Receive, kMaxRequests> requests_;
  std::array<Entry, kRecords> entries_;
  uint32_t next_ = 0;            // sequence number of the next entry
  uint32_t announced_ = 0;       // entries before it are announced
  uint32_t announced_by_ = 0;    // the rail that carried the latest announcement
  uint32_t announced_open_ = 0;  // of them, those without a message
  uint32_t open_ = 0;            // entries in use
  uint32_t tag_ = 0;             // tag of all entries in use, if one_tag_
  bool one_tag_ = true;
  uint32_t writes_ = 0;  // of records, not yet complete
};

}  // namespace tutti::net_ib
