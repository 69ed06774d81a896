// SPDX-License-Identifier: Apache-2.0
// When a connection looks at its sockets.
#pragma once

#include <cstdint>
#include <utility>

#include "tutti/sdk/network.h"

namespace tutti::net_socket {

/// A look at the sockets costs system calls. Tests of one round share a look: after a look that moved nothing, tests of
/// other requests skip theirs until the same request is tested again. A connection that stays idle over many rounds
/// looks in one round of kIdleLooks, so that it does not slow busy connections. Before a thread sleeps, it asks for
/// events; each event makes all connections look at once.
class Looks {
 public:
  /// Whether the test of a request looks; `arousals` is the count of events (Shared).
  bool is_due(const sdk::Request& request, uint64_t arousals) {
    if (std::exchange(seen_arousals_, arousals) != arousals) {
      empty_looks_ = 0;
      return true;
    }
    if (idle_ != nullptr && idle_ != &request && ++skips_ < kMaxSkips) return false;
    skips_ = 0;
    return ++empty_looks_ <= kEagerLooks || empty_looks_ % kIdleLooks == 0;
  }
  /// The test of the request has looked.
  void note(const sdk::Request& request, bool moved) {
    idle_ = moved ? nullptr : &request;
    if (moved) empty_looks_ = 0;
    skips_ = 0;
  }
  /// The next test looks, whatever request it tests.
  void forget_request() { idle_ = nullptr; }
  void expect_data() {
    idle_ = nullptr;
    empty_looks_ = 0;
  }

 private:
  static constexpr uint32_t kMaxSkips = 128;    // a round of tests over all requests is shorter
  static constexpr uint64_t kEagerLooks = 128;  // in a row, before a connection counts as idle
  static constexpr uint64_t kIdleLooks = 16;    // an idle connection looks once in so many rounds

  const sdk::Request* idle_ = nullptr;  // the request whose test last moved nothing
  uint32_t skips_ = 0;                  // tests of other requests since
  uint64_t empty_looks_ = 0;            // rounds of tests that moved nothing, in a row
  uint64_t seen_arousals_ = 0;
};

}  // namespace tutti::net_socket
