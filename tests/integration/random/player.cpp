// SPDX-License-Identifier: Apache-2.0
#include "integration/random/player.h"

#include <fmt/format.h>

#include "tools/check/compare.h"
#include "tools/check/random_input.h"

namespace tutti::sequence {
namespace {

constexpr size_t kGuardBytes = 256;
constexpr size_t kAlignment = 256;

/// A replay gets input of its own.
check::Problem problem_of(const Call& call, int play) {
  check::Problem problem = call.problem;
  problem.seed = check::mix(problem.seed + static_cast<uint64_t>(play));
  return problem;
}

/// The drawn communicator may be forced to an algorithm that does not offer the call. Then the second communicator
/// makes the call, on all ranks.
uint32_t communicator_for(const Call& call, std::span<Communicator> communicators) {
  const check::Problem& problem = call.problem;
  const Collective collective = problem.uneven ? Collective::kSendRecv : problem.collective;
  const auto choice = communicators[call.communicator].choose(collective, problem.count, problem.type, problem.op);
  return choice.status().code() == Code::kUnsupported ? 0 : call.communicator;
}

Status wrong(std::string text) {
  return {Code::kInternal, std::move(text)};
}

}  // namespace

Status Player::play(const Round& round, std::span<Communicator> communicators) {
  communicators_ = communicators;
  lay_out(round);
  for (int play = 0; play < round.plays; ++play) {
    const auto played = [&]() -> Status {
      prepare(play);
      TUTTI_ASSIGN(base_, device_.load(image_));
      TUTTI_TRY(make(round, play));
      TUTTI_TRY(await());
      TUTTI_TRY(device_.store(image_));
      return check(play);
    };
    TUTTI_TRY(played().with_context(
        fmt::format("round {}{}", round.number, round.graph ? fmt::format(", replay {} of a graph", play) : "")));
  }
  return {};
}

void Player::lay_out(const Round& round) {
  units_.clear();
  regions_.clear();
  end_ = 0;
  for (const Unit& unit : round.units) {
    units_.push_back({{}, &unit});
    for (const Call& call : unit.calls) units_.back().calls.push_back(place(call));
  }
  image_.resize(end_ + kGuardBytes);
}

size_t Player::reserve(size_t bytes, size_t shift) {
  const size_t begin = (end_ + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment + shift;
  regions_.push_back({begin, bytes});
  end_ = begin + bytes;
  return begin;
}

Player::Placed Player::place(const Call& drawn) {
  Call call = drawn;
  call.communicator = communicator_for(call, communicators_);
  const check::Problem& problem = call.problem;
  const int rank = communicators_.front().rank();
  const size_t element_bytes = size_of(problem.type);
  const size_t input_bytes = check::input_elements(problem, rank) * element_bytes;
  if (call.in_place) {
    const auto both = *check::in_place(problem, rank);
    const size_t buffer = reserve(both.elements * element_bytes, call.input_shift * element_bytes);
    return {call, buffer + both.input * element_bytes, buffer + both.output * element_bytes, input_bytes, 0};
  }
  const size_t input = reserve(input_bytes, call.input_shift * element_bytes);
  const size_t output_bytes = check::output_elements(problem, rank) * element_bytes;
  return {call, input, reserve(output_bytes, call.output_shift * element_bytes), input_bytes, 0};
}

void Player::prepare(int play) {
  check::poison(image_.data(), image_.size());
  const int rank = communicators_.front().rank();
  for (PlacedUnit& unit : units_) {
    for (Placed& placed : unit.calls) {
      const check::Problem problem = problem_of(placed.call, play);
      std::byte* const input = image_.data() + placed.input;
      check::fill_input(problem, rank, 0, check::input_elements(problem, rank), input);
      placed.input_hash = check::hash(input, placed.input_bytes);
    }
  }
}

/// Beside a graph other calls are made, before it and after it in turn.
Status Player::make(const Round& round, int play) {
  if (!round.graph) return make_units(false);
  if (play == 0) TUTTI_TRY(device_.record([this] { return make_units(false); }));
  if (play % 2 == 1) TUTTI_TRY(make_units(true));
  TUTTI_TRY(device_.replay());
  return play % 2 == 0 ? make_units(true) : Status();
}

/// Waits until all calls have ended, with success or failure.
Status Player::await() {
  Status ended = device_.finish();
  for (const Communicator& communicator : communicators_) {
    if (ended.ok()) ended = communicator.async_error();
  }
  return ended.ok() ? ended : ended.with_context("one of" + describe_all());
}

Status Player::make_units(bool eager) {
  for (const PlacedUnit& unit : units_) {
    if (unit.unit->eager == eager) TUTTI_TRY(make_unit(unit));
  }
  return {};
}

Status Player::make_unit(const PlacedUnit& unit) {
  if (unit.calls.size() == 1) return make_calls(unit);
  TUTTI_TRY(group_start());
  const Status made = make_calls(unit);
  const Status ended = group_end();
  TUTTI_TRY(made);
  return ended.ok() ? ended : ended.with_context("a group, one of" + describe_all());
}

Status Player::make_calls(const PlacedUnit& unit) {
  for (const Placed& placed : unit.calls) {
    const auto& [call, input, output, input_bytes, input_hash] = placed;
    Communicator& communicator = communicators_[call.communicator];
    const check::Call make(call.problem, communicator.rank());
    Stream stream = device_.stream(call.stream);
    const Status made = make(communicator, base_ + input, base_ + output, stream);
    if (!made.ok()) return made.with_context(describe(placed));
  }
  return {};
}

Status Player::check(int play) const {
  for (const PlacedUnit& unit : units_) {
    for (const Placed& placed : unit.calls) {
      if (const Status checked = check(placed, play); !checked.ok()) {
        return checked.with_context(fmt::format("{}, {}, stream {}", describe(placed),
                                                unit.calls.size() > 1 ? "in a group" : "alone", placed.call.stream));
      }
    }
  }
  return check_guards();
}

Status Player::check(const Placed& placed, int play) const {
  const check::Problem problem = problem_of(placed.call, play);
  const int rank = communicators_.front().rank();
  const auto reference = check::Reference::for_rank(problem, rank);
  const auto comparison = check::compare(problem, reference, rank, image_.data() + placed.output);
  if (comparison.wrong > 0) return wrong(fmt::format("{} wrong, the first: {}", comparison.wrong, comparison.first));
  const bool changed = check::hash(image_.data() + placed.input, placed.input_bytes) != placed.input_hash;
  return changed && !placed.call.in_place ? wrong("the input was changed") : Status();
}

Status Player::check_guards() const {
  size_t end = 0;
  for (const Region& region : regions_) {
    if (check::count_written(image_.data() + end, region.begin - end) > 0) {
      return wrong(
          fmt::format("memory before the buffer at {} was written, by one of{}", region.begin, describe_all()));
    }
    end = region.begin + region.bytes;
  }
  const bool written = check::count_written(image_.data() + end, image_.size() - end) > 0;
  return written ? wrong("memory after the last buffer was written, by one of" + describe_all()) : Status();
}

std::string Player::describe(const Placed& placed) const {
  const auto& [problem, in_place, communicator, stream, input_shift, output_shift] = placed.call;
  const Collective collective = problem.uneven ? Collective::kSendRecv : problem.collective;
  const auto choice = communicators_[communicator].choose(collective, problem.count, problem.type, problem.op);
  std::string ran = choice.ok() ? fmt::format("{}/{}/{}/{} ×{}", choice->algorithm, choice->variant, choice->protocol,
                                              choice->transport, choice->channels)
                                : choice.status().to_string();
  return fmt::format("{}, {}, communicator {}, {}, buffers at {} and {}", to_string(problem),
                     in_place ? "in place" : "out of place", communicator, ran, placed.input, placed.output);
}

std::string Player::describe_all() const {
  std::string text;
  for (const PlacedUnit& unit : units_) {
    for (const Placed& placed : unit.calls) text += fmt::format("\n    {}", describe(placed));
  }
  return text + "\n ";
}

}  // namespace tutti::sequence
