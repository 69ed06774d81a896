// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/turns.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace tutti::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBatches = 9;
constexpr int kRounds = 100;  // of a batch

/// A ring of ranks, of which the first sends the message of a round, and is the last to receive it.
class Ring {
 public:
  Ring(Communicator& communicator, std::span<const int> ranks) : communicator_(communicator) {
    const auto own = static_cast<size_t>(std::ranges::find(ranks, communicator.rank()) - ranks.begin());
    begins_ = own == 0;
    next_ = ranks[(own + 1) % ranks.size()];
    previous_ = ranks[(own + ranks.size() - 1) % ranks.size()];
  }

  Status round() {
    if (begins_) TUTTI_TRY(send());
    TUTTI_TRY(communicator_.recv(&message_, sizeof message_, DataType::kUint8, previous_));
    return begins_ ? Status() : send();
  }

 private:
  Status send() { return communicator_.send(&message_, sizeof message_, DataType::kUint8, next_); }

  Communicator& communicator_;
  bool begins_ = false;
  int next_ = 0;
  int previous_ = 0;
  uint64_t message_ = 0;
};

}  // namespace

Result<double> measure_turn(Communicator& communicator, std::span<const int> ranks, int processors) {
  Ring ring(communicator, ranks);
  const auto count = static_cast<double>(ranks.size());
  std::array<double, kBatches> hops_us = {};
  for (int batch = -1; batch < kBatches; ++batch) {  // the first batch makes the connections
    const auto start = Clock::now();
    for (int i = 0; i < kRounds; ++i) TUTTI_TRY(ring.round());
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (batch >= 0) hops_us[static_cast<size_t>(batch)] = elapsed.count() / kRounds / count;
  }
  // The median: in the fastest batch, the processor may take the ranks in the order of the ring.
  std::ranges::nth_element(hops_us, hops_us.begin() + kBatches / 2);
  return hops_us[kBatches / 2] / (count / processors / 2);
}

}  // namespace tutti::tune
