// SPDX-License-Identifier: Apache-2.0
// The collective calls of a rank, with all contributions sealed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/clock.h"
#include "bootstrap/gathered.h"
#include "bootstrap/seal.h"
#include "bootstrap/shared_results.h"

namespace tutti::bootstrap {

/// One thread at a time. Every rank makes the same calls in the same order: their number is a part of each seal.
class SealedCalls {
 public:
  /// Asks the hub and waits for its answer.
  using Exchange = std::function<Result<Bytes>(const Header& call, Bytes contribution, base::Time deadline)>;
  /// The own rank in the group.
  struct Membership {
    int rank;
    int rank_count;
  };
  static Result<std::unique_ptr<SealedCalls>> create(const Secret& secret, Membership membership, Exchange exchange);

  /// As those of Bootstrap.
  Result<Gathered> all_gather(std::span<const std::byte> mine, base::Time deadline);
  Result<Bytes> broadcast(int root, std::span<const std::byte> bytes, base::Time deadline);

 private:
  SealedCalls(std::unique_ptr<const Seal> seal, std::shared_ptr<SharedResults> shared, Membership membership,
              Exchange exchange)
      : seal_(std::move(seal)), shared_(std::move(shared)), membership_(membership), exchange_(std::move(exchange)) {}
  Result<Gathered> open(uint32_t call, std::span<const std::byte> gathered) const;

  const std::unique_ptr<const Seal> seal_;
  const std::shared_ptr<SharedResults> shared_;
  const Membership membership_;
  const Exchange exchange_;
  uint32_t calls_ = 0;
};

}  // namespace tutti::bootstrap
