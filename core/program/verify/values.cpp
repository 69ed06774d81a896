// SPDX-License-Identifier: Apache-2.0
#include "program/verify/values.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/verify/rotor.h"

namespace tutti::program {
namespace {

constexpr uint64_t kFinal = 0x46494e414cu;

}  // namespace

std::string Values::StepId::text() const {
  return fmt::format("rank {} step {}", rank, step);
}

Values::Values(uint32_t rank_count, const std::optional<Rotation>& rotation)
    : rank_count_(rank_count), rotation_(rotation), sets_(rank_count) {
  if (rotation) rotor_.emplace(rank_count);
}

Values::Id Values::input(uint32_t rank, uint32_t chunk, StepId where) {
  uint64_t expression = 0;
  if (rotation_) {
    const uint32_t of_zero = rotation_->chunk(TUTTI_BUFFER_INPUT, chunk, rank_count_ - rank);
    expression = rotor_->input(of_zero, rank);
  } else {
    expression = mix(uint64_t{rank} << 32 | chunk);
  }
  values_.push_back({.chunk = chunk,
                     .rank = rank,
                     .expression = expression,
                     .members = sets_.single(rank),
                     .defect = kNone,
                     .made = where,
                     .final = false});
  return static_cast<Id>(values_.size() - 1);
}

Values::Id Values::fold(std::span<const Id> operands, std::span<const uint32_t> ranks, StepId where) {
  if (operands.size() == 1) return operands[0];
  const Value& first = values_[operands[0]];
  Value result = {.chunk = first.chunk,
                  .rank = first.rank,
                  .expression = expression_of(operands, ranks),
                  .members = 0,
                  .defect = kNone,
                  .made = where,
                  .final = false};
  has_wide_folds_ = has_wide_folds_ || operands.size() > 2;
  parts_.clear();
  for (Id operand : operands) {
    merge(values_[operand], result, where);
    parts_.push_back(values_[operand].members);
    values_[operand].used = true;
  }
  std::optional<uint32_t> twice;
  result.members = sets_.united(parts_, twice);
  if (twice) note(result, fmt::format("holds rank {} twice, folded by {}", *twice, where.text()));
  values_.push_back(result);
  return static_cast<Id>(values_.size() - 1);
}

uint64_t Values::expression_of(std::span<const Id> operands, std::span<const uint32_t> ranks) {
  expressions_.clear();
  for (Id operand : operands) expressions_.push_back(values_[operand].expression);
  if (rotor_) {
    return operands.size() == 2 ? rotor_->fold(expressions_[0], expressions_[1]) : rotor_->fold(expressions_, ranks);
  }
  if (expressions_.size() == 2) std::sort(expressions_.begin(), expressions_.end());
  uint64_t result = operands.size();
  for (uint64_t expression : expressions_) result = mix(result ^ mix(expression));
  return result;
}

Values::Id Values::finalize(Id value, StepId where) {
  Value result = values_[value];
  values_[value].used = true;
  if (result.final) note(result, fmt::format("was made final twice, at last by {}", where.text()));
  result.final = true;
  result.made = where;
  result.used = false;
  result.expression = rotor_ ? rotor_->finalize(result.expression) : mix(result.expression ^ kFinal);
  values_.push_back(result);
  return static_cast<Id>(values_.size() - 1);
}

Values::Id Values::moved(Id value, uint32_t distance) {
  if (distance == 0) return value;
  Value result = values_[value];
  values_[value].used = true;
  result.rank = rotation_->rank(result.rank, distance);
  result.chunk = rotation_->chunk(TUTTI_BUFFER_INPUT, result.chunk, distance);
  result.members = sets_.moved(result.members, distance);
  result.expression = rotor_->moved(result.expression, distance);
  result.used = false;
  values_.push_back(result);
  return static_cast<Id>(values_.size() - 1);
}

void Values::merge(const Value& operand, Value& into, StepId where) {
  if (operand.defect != kNone) into.defect = operand.defect;
  if (operand.final) note(into, fmt::format("was folded on by {} after it had been made final", where.text()));
  if (operand.chunk != into.chunk) {
    note(into, fmt::format("mixes input chunks {} and {}, folded by {}", into.chunk, operand.chunk, where.text()));
  }
}

/// Keeps the first defect: later defects follow from it.
void Values::note(Value& value, std::string defect) {
  if (value.defect != kNone) return;
  value.defect = static_cast<uint32_t>(defects_.size());
  defects_.push_back(std::move(defect));
}

/// The end of a rank's contribution to an input chunk: the last value that holds it and that no step uses.
std::string Values::end_of(uint32_t rank, uint32_t chunk) const {
  if (rotation_) return {};  // the values are those of rank 0 alone
  bool is_read = false;
  for (size_t i = values_.size(); i-- > 0;) {
    const Value& value = values_[i];
    if (value.chunk != chunk || !sets_.has(value.members, rank)) continue;
    is_read = true;
    if (!value.used && !value.final)
      return fmt::format(", whose contribution ends in the value of {}", value.made.text());
  }
  return is_read ? std::string() : fmt::format(", whose input chunk {} no step reads", chunk);
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
  if (const auto rank = sets_.first_lacking(value.members)) {
    add(fmt::format("lacks rank {}{}", *rank, end_of(*rank, chunk)));
  }
  if (!value.final) add("was never made final: mark its last step as final");
  return text;
}

}  // namespace tutti::program
