// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/pair.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

namespace tutti::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSmallBytes = 8;
constexpr int kBatches = 9;
constexpr int kSmallCalls = 200;  // of a batch
constexpr int kLargeCalls = 16;
constexpr int kQueued = 8;  // small messages of one group

/// The time of a call in µs, in the fastest batch: other programs disturb some batches. The first batch warms up.
template <class Call>
Result<double> time_of(int calls, Call&& call) {
  double fastest_us = std::numeric_limits<double>::max();
  for (int batch = 0; batch <= kBatches; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) TUTTI_TRY(call());
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (batch > 0) fastest_us = std::min(fastest_us, elapsed.count() / calls);
  }
  return fastest_us;
}

/// Both ranks call each function at the same time.
class Pair {
 public:
  Pair(Communicator& communicator, int peer, size_t most_bytes)
      : communicator_(communicator), peer_(peer), output_(most_bytes), input_(most_bytes) {}

  /// One way.
  Result<double> ping_pong_us() {
    TUTTI_ASSIGN(const double both_us, time_of(kSmallCalls, [&]() -> Status {
                   if (communicator_.rank() < peer_) TUTTI_TRY(send(kSmallBytes));
                   TUTTI_TRY(receive(kSmallBytes));
                   return communicator_.rank() < peer_ ? Status() : send(kSmallBytes);
                 }));
    return both_us / 2;
  }

  /// The time of a group in which both ranks send and receive so many messages.
  Result<double> exchange_us(size_t bytes, int messages, int calls) {
    return time_of(calls, [&]() -> Status {
      TUTTI_TRY(group_start());
      Status status;
      for (int i = 0; i < messages && status.ok(); ++i) {
        status = send(bytes);
        if (status.ok()) status = receive(bytes);
      }
      const Status done = group_end();
      return status.ok() ? done : status;
    });
  }

 private:
  Status send(size_t bytes) { return communicator_.send(output_.data(), bytes, DataType::kUint8, peer_); }
  Status receive(size_t bytes) { return communicator_.recv(input_.data(), bytes, DataType::kUint8, peer_); }

  Communicator& communicator_;
  int peer_;
  std::vector<std::byte> output_;
  std::vector<std::byte> input_;
};

}  // namespace

Result<PairFigures> measure_pair(Communicator& communicator, int peer, size_t large_bytes) {
  Pair pair(communicator, peer, large_bytes);
  PairFigures figures;
  TUTTI_ASSIGN(figures.latency_us, pair.ping_pong_us());
  TUTTI_ASSIGN(const double one_us, pair.exchange_us(kSmallBytes, 1, kSmallCalls));
  TUTTI_ASSIGN(const double many_us, pair.exchange_us(kSmallBytes, kQueued, kSmallCalls));
  // A rank handles two ends in an exchange, so an end takes no longer than half of it. A group of many
  // messages can take longer: its ranks and their engines then switch on one processor.
  const double queued_us = std::max(many_us - one_us, 0.0) / (2 * (kQueued - 1));
  figures.gap_us = std::min(queued_us, one_us / 2);
  TUTTI_ASSIGN(const double large_us, pair.exchange_us(large_bytes, 1, kLargeCalls));
  figures.gbs = static_cast<double>(large_bytes) / large_us / 1e3;
  return figures;
}

}  // namespace tutti::tune
