// SPDX-License-Identifier: Apache-2.0
#include "program/verify/rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>

namespace tutti::program {
namespace {

bool has(const tutti_plan_step& step, uint8_t flag) {
  return (step.flags & flag) != 0;
}

/// Whether a step only forwards: then its source chunk is the size of its messages.
bool relays(const tutti_plan_step& step) {
  return step.source == TUTTI_BUFFER_NONE && step.destination == TUTTI_BUFFER_NONE && !has(step, TUTTI_STEP_GATHER) &&
         step.recv_count > 0;
}

Status none(std::string why) {
  return {Code::kInvalidArgument, std::move(why)};
}

/// Compares a plan with the image of rank 0's.
class Comparison {
 public:
  Comparison(const Rotation& rotation, const Plan& zero, const Plan& plan)
      : rotation_(rotation), zero_(zero), plan_(plan), distance_(plan.rank) {}

  std::string run() {
    if (const std::string what = head(); !what.empty()) return fmt::format("rank {}: {}", plan_.rank, what);
    for (size_t s = 0; s < zero_.steps.size(); ++s) {
      const std::string_view what = step(zero_.steps[s], plan_.steps[s]);
      if (!what.empty()) return fmt::format("rank {} step {}: {} is not that of rank 0, moved", plan_.rank, s, what);
    }
    return {};
  }

 private:
  std::string head() const {
    if (plan_.steps.size() != zero_.steps.size()) {
      return fmt::format("has {} steps, but rank 0 has {}", plan_.steps.size(), zero_.steps.size());
    }
    const bool alike = plan_.collective == zero_.collective && plan_.rank_count == zero_.rank_count &&
                       plan_.root == zero_.root && plan_.channel == zero_.channel && plan_.chunks == zero_.chunks &&
                       plan_.input_blocks == zero_.input_blocks && plan_.output_blocks == zero_.output_blocks &&
                       plan_.scratch_chunks == zero_.scratch_chunks && plan_.message_chunks == zero_.message_chunks;
    if (!alike) return "the head of the plan is not that of rank 0";
    if (!same(plan_.ranges, zero_.ranges)) return "the lists of chunks are not those of rank 0";
    if (!same(plan_.strands, zero_.strands) || !same(plan_.waits, zero_.waits)) {
      return "the strands or their waits are not those of rank 0";
    }
    return same(plan_.repeats, zero_.repeats) && same(plan_.growths, zero_.growths)
               ? ""
               : "the repeats are not those of rank 0";
  }

  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
  }

  /// The part of a step that differs; empty if there is none.
  std::string_view step(const tutti_plan_step& of_zero, const tutti_plan_step& step) {
    if (step.source != of_zero.source || step.destination != of_zero.destination || step.flags != of_zero.flags ||
        gather_buffer_of(step) != gather_buffer_of(of_zero)) {
      return "its form";
    }
    const bool counts = step.source != TUTTI_BUFFER_NONE || relays(step);
    const uint32_t source = counts ? rotation_.chunk(step.source, of_zero.source_chunk, distance_) : 0;
    if (step.source_chunk != source) return "its source chunk";
    const bool writes = step.destination != TUTTI_BUFFER_NONE;
    if (writes && step.destination_chunk != rotation_.chunk(step.destination, of_zero.destination_chunk, distance_)) {
      return "its destination chunk";
    }
    const uint8_t gathers = has(step, TUTTI_STEP_GATHER) ? gather_buffer_of(step) : uint8_t{0};
    if (!peers(zero_.recv(of_zero), plan_.recv(step), gathers)) return "the list of its senders";
    const uint8_t scatters = has(step, TUTTI_STEP_SCATTER) ? step.source : uint8_t{0};
    return peers(zero_.send(of_zero), plan_.send(step), scatters) ? "" : "the list of its receivers";
  }

  /// `buffer`: that of the peers' chunks, or 0 if peers have no chunks.
  bool peers(std::span<const tutti_plan_peer> of_zero, std::span<const tutti_plan_peer> peers, uint8_t buffer) {
    if (of_zero.size() != peers.size()) return false;
    moved_.clear();
    for (const tutti_plan_peer& peer : of_zero) {
      moved_.push_back({rotation_.rank(peer.rank, distance_),
                        buffer == 0 ? peer.chunk : rotation_.chunk(buffer, peer.chunk, distance_)});
    }
    const auto equal = [](const tutti_plan_peer& a, const tutti_plan_peer& b) {
      return a.rank == b.rank && a.chunk == b.chunk;
    };
    if (std::equal(moved_.begin(), moved_.end(), peers.begin(), equal)) return true;
    given_.assign(peers.begin(), peers.end());
    const auto below = [](const tutti_plan_peer& a, const tutti_plan_peer& b) { return a.rank < b.rank; };
    std::sort(moved_.begin(), moved_.end(), below);
    std::sort(given_.begin(), given_.end(), below);
    return std::equal(moved_.begin(), moved_.end(), given_.begin(), equal);
  }

  const Rotation& rotation_;
  const Plan& zero_;
  const Plan& plan_;
  uint32_t distance_;
  std::vector<tutti_plan_peer> moved_;
  std::vector<tutti_plan_peer> given_;
};

/// Makes the plan of another rank.
class Mover {
 public:
  Mover(const Rotation& rotation, const Plan& plan, uint32_t distance)
      : rotation_(rotation), plan_(plan), distance_(distance), out_(plan) {}

  Result<Plan> run() {
    out_.rank = rotation_.rank(plan_.rank, distance_);
    if (has_root(plan_.collective)) out_.root = rotation_.rank(plan_.root, distance_);
    out_.peers.clear();
    for (size_t s = 0; s < out_.steps.size(); ++s) {
      tutti_plan_step& step = out_.steps[s];
      const bool gathers = has(step, TUTTI_STEP_GATHER);
      const bool scatters = has(step, TUTTI_STEP_SCATTER);
      const bool folds = !gathers && !scatters;
      TUTTI_ASSIGN(step.recv_begin, range(plan_.recv(step), folds, gathers ? gather_buffer_of(step) : uint8_t{0}));
      TUTTI_ASSIGN(step.send_begin, range(plan_.send(step), folds, scatters ? step.source : uint8_t{0}));
      step.source_chunk = rotation_.chunk(step.source, step.source_chunk, distance_);
      if (step.source == TUTTI_BUFFER_NONE && !relays(plan_.steps[s])) step.source_chunk = 0;
      if (step.destination == TUTTI_BUFFER_NONE) continue;
      step.destination_chunk = rotation_.chunk(step.destination, step.destination_chunk, distance_);
    }
    return copy(out_.view());
  }

 private:
  /// Appends the peers of a step, and returns where they begin. Peers of a step that folds are put in order again.
  Result<uint16_t> range(std::span<const tutti_plan_peer> peers, bool folds, uint8_t buffer) {
    if (peers.empty()) return uint16_t{0};
    const auto [known, is_new] = begins_.try_emplace({peers.data(), peers.size(), buffer}, out_.peers.size());
    if (known->second > UINT16_MAX) {
      return Status(Code::kUnsupported, fmt::format("the steps name more than {} different peers", UINT16_MAX));
    }
    const auto begin = static_cast<uint16_t>(known->second);
    if (!is_new) return begin;
    for (const tutti_plan_peer& peer : peers) {
      out_.peers.push_back(
          {rotation_.rank(peer.rank, distance_), buffer == 0 ? 0 : rotation_.chunk(buffer, peer.chunk, distance_)});
    }
    const auto ascending = [](const tutti_plan_peer& a, const tutti_plan_peer& b) { return a.rank < b.rank; };
    if (folds) std::sort(out_.peers.begin() + begin, out_.peers.end(), ascending);
    return begin;
  }

  using Range = std::tuple<const tutti_plan_peer*, size_t, uint8_t>;
  const Rotation& rotation_;
  const Plan& plan_;
  uint32_t distance_;
  Plan out_;
  std::map<Range, size_t> begins_;  ///< of ranges of the plan in the peers of the new plan
};

/// The difference of two chunks, modulo the number of chunks.
uint32_t difference(uint32_t to, uint32_t from, uint32_t modulus) {
  return (to + modulus - from) % modulus;
}

}  // namespace

uint32_t Rotation::chunk(uint32_t buffer, uint32_t of_zero, uint32_t distance) const {
  const auto moved = [&](uint64_t shift, uint64_t modulus) {
    return shift == 0 ? of_zero : static_cast<uint32_t>((of_zero + shift * distance % modulus) % modulus);
  };
  if (buffer == TUTTI_BUFFER_NONE) return moved(chunk_shift, chunks);
  if (buffer == TUTTI_BUFFER_SCRATCH) return moved(scratch_shift, scratch_chunks);
  const uint32_t blocks = buffer == TUTTI_BUFFER_INPUT ? input_blocks : output_blocks;
  return blocks > 1 ? moved(chunks, uint64_t{blocks} * chunks) : moved(chunk_shift, chunks);
}

Result<Rotation> rotation_of(const Plan& plan, uint32_t chunk_shift, uint32_t scratch_shift) {
  const Rotation rotation{plan.rank_count,     plan.chunks, plan.input_blocks, plan.output_blocks,
                          plan.scratch_chunks, chunk_shift, scratch_shift};
  if (chunk_shift >= plan.chunks) return none("chunks of a block move by less than the number of chunks");
  if (chunk_shift > 0 && (plan.input_blocks > 1 || plan.output_blocks > 1)) {
    return none("chunks of a block move only if the input and the output have one block");
  }
  if (uint64_t{chunk_shift} * plan.rank_count % plan.chunks != 0) {
    return none(fmt::format("{} ranks times {} chunks are no multiple of the {} chunks of a block", plan.rank_count,
                            chunk_shift, plan.chunks));
  }
  if (scratch_shift > 0) {
    if (scratch_shift >= plan.scratch_chunks) return none("scratch chunks move by less than their number");
    if (uint64_t{scratch_shift} * plan.rank_count % plan.scratch_chunks != 0) {
      return none(fmt::format("{} ranks times {} chunks are no multiple of the {} scratch chunks", plan.rank_count,
                              scratch_shift, plan.scratch_chunks));
    }
  }
  const bool whole = plan.scratch_chunks % plan.chunks == 0 && scratch_shift % plan.chunks == chunk_shift;
  const bool still = chunk_shift == 0 && scratch_shift == 0;
  if (plan.scratch_chunks > 0 && !whole && !still) return none("scratch chunks would change their length");
  return rotation;
}

std::optional<Rotation> find_rotation(const Plan& zero, const Plan& one) {
  if (has_root(zero.collective) || zero.steps.size() != one.steps.size() || zero.chunks != one.chunks) return {};
  if (zero.scratch_chunks != one.scratch_chunks) return {};
  const bool one_block = zero.input_blocks == 1 && zero.output_blocks == 1;
  std::optional<uint32_t> chunk_shift;
  std::optional<uint32_t> scratch_shift;
  const auto take = [&](uint8_t buffer, uint32_t from, uint32_t to) {
    if (buffer == TUTTI_BUFFER_SCRATCH) {
      if (!scratch_shift) scratch_shift = difference(to, from, zero.scratch_chunks);
    } else if (!chunk_shift) {
      chunk_shift = difference(to % zero.chunks, from % zero.chunks, zero.chunks);
    }
  };
  for (size_t s = 0; s < zero.steps.size() && (!chunk_shift || !scratch_shift); ++s) {
    const tutti_plan_step& a = zero.steps[s];
    const tutti_plan_step& b = one.steps[s];
    if (a.source != b.source || a.destination != b.destination) return {};
    if (a.source != TUTTI_BUFFER_NONE) take(a.source, a.source_chunk, b.source_chunk);
    if (a.destination != TUTTI_BUFFER_NONE) take(a.destination, a.destination_chunk, b.destination_chunk);
  }
  const auto rotation = rotation_of(zero, one_block ? chunk_shift.value_or(0) : 0, scratch_shift.value_or(0));
  return rotation.ok() ? std::optional(*rotation) : std::nullopt;
}

std::string differs_from_image(const Rotation& rotation, const Plan& zero, const Plan& plan) {
  return Comparison(rotation, zero, plan).run();
}

Result<Plan> image(const Rotation& rotation, const Plan& plan, uint32_t distance) {
  if (distance == 0) return plan;
  return Mover(rotation, plan, distance).run();
}

}  // namespace tutti::program
