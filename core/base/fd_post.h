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

/// One member of a group whose members all give files to all others. One thread at a time.
class FdPost {
 public:
  /// How others find it. Plain data. What knows it may send: it is not to be shown to other users.
  struct Address {
    uint64_t name = 0;
    uint64_t secret = 0;
  };
  /// A file and what is to be known of it.
  struct Item {
    int fd = -1;
    uint64_t note = 0;
  };
  struct Parcel {
    std::vector<Fd> files;
    std::vector<uint64_t> notes;  ///< one for each
  };

  static Result<FdPost> open();
  const Address& address() const { return address_; }

  /// Gives `items` to all other members and returns what each of them gave, by member; nothing is the own. All members
  /// call it, once each, with the addresses of all. The files given stay the caller's. `is_over` is asked every now and
  /// then; what it returns, if not ok, ends the call.
  /// Errors: kTimeout (names a member that gave nothing), kRemote (one is gone or has failed), kSystem (too many open
  /// files), and those of `is_over`.
  Result<std::vector<Parcel>> exchange(std::span<const Address> members, uint32_t self, std::span<const Item> items,
                                       Time deadline, const std::function<Status()>& is_over);

 private:
  FdPost(Fd socket, const Address& address) : socket_(std::move(socket)), address_(address) {}

  Fd socket_;
  Address address_;
};

}  // namespace tutti::base
