// SPDX-License-Identifier: Apache-2.0
// How processes of one machine give each other open files: datagrams over Unix sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace tutti::base {

/// One member of a group in which each member gives files to all members. One thread at a time.
class FdPost {
 public:
  /// The address of a member. Plain data. Every process that knows it may send, so do not show it to other users.
  struct Address {
    uint64_t name = 0;
    uint64_t secret = 0;
  };
  /// A file and a note about it.
  struct Item {
    int fd = -1;
    uint64_t note = 0;
  };
  struct Parcel {
    std::vector<Fd> files;
    std::vector<uint64_t> notes;  ///< one note per file
  };

  static Result<FdPost> open();
  const Address& address() const { return address_; }

  /// Gives `items` to all other members. Returns the items of each member, by member; the entry of this member is
  /// empty. All members call it, once each, with the addresses of all. The caller keeps its files. `is_over` is called
  /// at intervals; if it returns a failure, the call ends with this failure. Errors: kTimeout (names a member that gave
  /// nothing), kRemote (a member is gone or has failed), kSystem (too many open files), and the failures of `is_over`.
  Result<std::vector<Parcel>> exchange(std::span<const Address> members, uint32_t self, std::span<const Item> items,
                                       Time deadline, const std::function<Status()>& is_over);

 private:
  FdPost(Fd socket, const Address& address) : socket_(std::move(socket)), address_(address) {}

  Fd socket_;
  Address address_;
};

}  // namespace tutti::base
