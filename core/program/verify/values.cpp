// SPDX-License-Identifier: Apache-2.0
#include "program/verify/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tutti::program {
namespace {

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the result depends on every bit of `x`.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t kFinal = 0x46494e414cu;

}  // namespace

std::string Values::Place::text() const {
  return fmt::format("rank {} step {}", rank, step);
}

Values::Id Values::input(uint32_t rank, uint32_t chunk) {
  values_.push_back({.chunk = chunk,
                     .rank = rank,
                     .expression = mix(uint64_t{rank} << 32 | chunk),
                     .members = kNone,
                     .defect = kNone,
                     .final = false});
  return static_cast<Id>(values_.size() - 1);
}

Values::Id Values::fold(std::span<const Id> operands, Place where) {
  if (operands.size() == 1) return operands[0];
  const Value& first = values_[operands[0]];
  Value result = {.chunk = first.chunk,
                  .rank = first.rank,
                  .expression = expression_of(operands),
                  .members = static_cast<uint32_t>(members_.size()),
                  .defect = kNone,
                  .final = false};
  members_.resize(members_.size() + words_);
  for (Id operand : operands) merge(values_[operand], result, where);
  values_.push_back(result);
  return static_cast<Id>(values_.size() - 1);
}

uint64_t Values::expression_of(std::span<const Id> operands) {
  expressions_.clear();
  for (Id operand : operands) expressions_.push_back(values_[operand].expression);
  if (expressions_.size() == 2) std::sort(expressions_.begin(), expressions_.end());
  uint64_t result = operands.size();
  for (uint64_t expression : expressions_) result = mix(result ^ mix(expression));
  return result;
}

Values::Id Values::finalize(Id value, Place where) {
  Value result = values_[value];
  if (result.final) note(result, fmt::format("was made final twice, at last by {}", where.text()));
  result.final = true;
  result.expression = mix(result.expression ^ kFinal);
  values_.push_back(result);
  return static_cast<Id>(values_.size() - 1);
}

void Values::merge(const Value& operand, Value& into, Place where) {
  if (operand.defect != kNone) into.defect = operand.defect;
  if (operand.final) note(into, fmt::format("was folded on by {} after it had been made final", where.text()));
  if (operand.chunk != into.chunk) {
    note(into, fmt::format("mixes input chunks {} and {}, folded by {}", into.chunk, operand.chunk, where.text()));
  }
  const auto add = [&](uint32_t word, uint64_t bits) {
    uint64_t& members = members_[into.members + word];
    if (const uint64_t twice = members & bits; twice != 0) {
      const auto rank = word * 64 + static_cast<uint32_t>(std::countr_zero(twice));
      note(into, fmt::format("holds rank {} twice, folded by {}", rank, where.text()));
    }
    members |= bits;
  };
  if (operand.members == kNone) {
    add(operand.rank / 64, uint64_t{1} << operand.rank % 64);
  } else {
    for (uint32_t word = 0; word < words_; ++word) add(word, members_[operand.members + word]);
  }
}

/// Keeps the first defect: later defects follow from it.
void Values::note(Value& value, std::string defect) {
  if (value.defect != kNone) return;
  value.defect = static_cast<uint32_t>(defects_.size());
  defects_.push_back(std::move(defect));
}

/// The first rank whose contribution is not in the value; rank_count_ if there is none.
uint32_t Values::first_lacking(const Value& value) const {
  if (value.members == kNone) return value.rank != 0 ? 0 : 1;
  for (uint32_t word = 0; word < words_; ++word) {
    const uint64_t lacking = ~members_[value.members + word];
    if (lacking != 0) return std::min(rank_count_, word * 64 + static_cast<uint32_t>(std::countr_zero(lacking)));
  }
  return rank_count_;
}

std::string Values::differs_from_input(Id id, uint32_t rank, uint32_t chunk) const {
  const Value& value = values_[id];
  if (value.rank == rank && value.chunk == chunk) return "";
  return fmt::format("holds input chunk {} of rank {}, not chunk {} of rank {}", value.chunk, value.rank, chunk, rank);
}

std::string Values::differs_from_reduction(Id id, uint32_t chunk) const {
  const Value& value = values_[id];
  std::string text = value.defect != kNone ? defects_[value.defect] : "";
  const auto add = [&](const std::string& what) { text += (text.empty() ? "" : " and ") + what; };
  if (value.chunk != chunk) add(fmt::format("holds input chunk {}, not {}", value.chunk, chunk));
  if (const uint32_t rank = first_lacking(value); rank < rank_count_) add(fmt::format("lacks rank {}", rank));
  if (!value.final) add("was never made final");
  return text;
}

}  // namespace tutti::program
