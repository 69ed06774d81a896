// SPDX-License-Identifier: Apache-2.0
// Remembers which plans were proved right.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "program/verify/prove.h"

namespace tutti::program {

/// The content of plans as 128 bits, computed alike on every machine of the same byte order. Channels that differ in
/// nothing but their number have the same.
struct Fingerprint {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Fingerprint&) const = default;
};
Fingerprint fingerprint(std::span<const Plan> plans, const VerifyOptions& options = {});
/// Of any text.
Fingerprint fingerprint(std::string_view text);

/// verify() and prove() that prove each set of plans once. Any thread may call them.
class VerifyCache {
 public:
  Status verify(std::span<const Plan> all_ranks, const VerifyOptions& options = {});
  Verdict prove(uint32_t rank_count, const PlanSource& source, const VerifyOptions& options,
                const ProofLimits& limits = {});
  size_t size() const;

 private:
  bool knows(const Fingerprint& print) const;
  void add(const Fingerprint& print);

  mutable std::mutex mutex_;
  std::set<Fingerprint> proved_;
};

}  // namespace tutti::program
