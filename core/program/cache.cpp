// SPDX-License-Identifier: Apache-2.0
#include "program/cache.h"

#include <fmt/format.h>

namespace tutti::program {
namespace {

/// Two lanes of FNV-1a over 32-bit words (Fowler, Noll, Vo), with different offsets and a rotation in the second.
class Hasher {
 public:
  void add(uint32_t word) {
    low_ = (low_ ^ word) * kPrime;
    high_ = (high_ ^ (word * uint64_t{0x9e3779b97f4a7c15u})) * kPrime;
    high_ = high_ << 23 | high_ >> 41;
  }
  Fingerprint result() const { return {high_, low_}; }

 private:
  static constexpr uint64_t kPrime = 0x100000001b3u;
  uint64_t low_ = 0xcbf29ce484222325u;
  uint64_t high_ = 0x6c62272e07bb0142u;
};

/// A channel's number makes no difference to a proof, as long as all plans have the same.
void add(Hasher& hasher, const Plan& plan, uint32_t first_channel) {
  for (uint32_t word :
       {static_cast<uint32_t>(plan.collective), plan.rank_count, plan.rank, plan.root, plan.channel - first_channel,
        plan.chunks, plan.input_blocks, plan.output_blocks, plan.scratch_chunks, plan.message_chunks,
        static_cast<uint32_t>(plan.ranges.size()), static_cast<uint32_t>(plan.repeats.size()),
        static_cast<uint32_t>(plan.steps.size()), static_cast<uint32_t>(plan.peers.size()),
        static_cast<uint32_t>(plan.strands.size()), static_cast<uint32_t>(plan.waits.size())}) {
    hasher.add(word);
  }
  for (const tutti_plan_step& step : plan.steps) {
    hasher.add(uint32_t{step.source} | uint32_t{step.destination} << 8 | uint32_t{step.flags} << 16 |
               uint32_t{step.gather_buffer} << 24);
    hasher.add(step.source_chunk);
    hasher.add(step.destination_chunk);
    hasher.add(step.recv_begin | uint32_t{step.recv_count} << 16);
    hasher.add(step.send_begin | uint32_t{step.send_count} << 16);
  }
  for (const tutti_plan_range& range : plan.ranges) {
    hasher.add(range.count);
    hasher.add(range.source_stride);
    hasher.add(range.destination_stride);
  }
  for (const tutti_plan_repeat& repeat : plan.repeats) {
    for (uint32_t word : {repeat.first_step, repeat.step_count, repeat.rounds}) hasher.add(word);
  }
  for (const tutti_plan_growth& growth : plan.growths) {
    for (uint32_t word : {growth.source_chunk, growth.destination_chunk, growth.recv_rank, growth.recv_chunk,
                          growth.send_rank, growth.send_chunk}) {
      hasher.add(word);
    }
  }
  for (const tutti_plan_strand& strand : plan.strands) hasher.add(strand.first_step);
  for (const tutti_plan_wait& wait : plan.waits) {
    hasher.add(wait.step);
    hasher.add(wait.after);
  }
  for (const tutti_plan_peer& peer : plan.peers) {
    hasher.add(peer.rank);
    hasher.add(peer.chunk);
  }
}

Hasher hasher_of(const VerifyOptions& options) {
  Hasher hasher;
  hasher.add(options.slots);
  hasher.add(options.in_place ? 1 : 0);
  return hasher;
}

}  // namespace

Fingerprint fingerprint(std::span<const Plan> plans, const VerifyOptions& options) {
  Hasher hasher = hasher_of(options);
  for (const Plan& plan : plans) add(hasher, plan, plans.front().channel);
  return hasher.result();
}

Fingerprint fingerprint(std::string_view text) {
  Hasher hasher;
  for (const char c : text) hasher.add(static_cast<unsigned char>(c));
  return hasher.result();
}

bool VerifyCache::knows(const Fingerprint& print) const {
  const std::lock_guard lock(mutex_);
  return proved_.contains(print);
}

void VerifyCache::add(const Fingerprint& print) {
  const std::lock_guard lock(mutex_);
  proved_.insert(print);
}

Status VerifyCache::verify(std::span<const Plan> all_ranks, const VerifyOptions& options) {
  const Fingerprint print = fingerprint(all_ranks, options);
  if (knows(print)) return {};
  TUTTI_TRY(program::verify(all_ranks, options));
  add(print);
  return {};
}

Verdict VerifyCache::prove(uint32_t rank_count, const PlanSource& source, const VerifyOptions& options,
                           const ProofLimits& limits) {
  Hasher hasher = hasher_of(options);
  uint32_t first_channel = 0;
  Extent extent;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    const Result<Plan> plan = source(rank);
    if (!plan.ok()) return {plan.status().with_context(fmt::format("rank {}", rank)), true, {}};
    if (rank == 0) first_channel = plan->channel;
    program::add(hasher, *plan, first_channel);
    extent.add(*plan);
    if (extent.entries <= limits.entries) continue;
    return {
        {Code::kUnsupported, fmt::format("the plans of all ranks have more than {} steps and peers", limits.entries)},
        false,
        {}};
  }
  if (knows(hasher.result())) return {{}, true, "earlier"};
  Verdict verdict = program::prove(rank_count, source, options, limits);
  if (verdict.status.ok()) add(hasher.result());
  return verdict;
}

size_t VerifyCache::size() const {
  const std::lock_guard lock(mutex_);
  return proved_.size();
}

}  // namespace tutti::program
