// SPDX-License-Identifier: Apache-2.0
#include "program/verify/races.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "program/verify/touches.h"

namespace tutti::program {
namespace {

/// Runs the steps of a plan in an order that keeps the waits, and knows for each step which steps of other strands are
/// complete for certain: a clock holds, for each strand, how many of its steps are (vector clocks; Fidge, Mattern
/// 1988).
class Detector {
 public:
  Detector(const Plan& plan, bool in_place) : plan_(plan), in_place_(in_place), is_waited_for_(plan.steps.size()) {
    for (const tutti_plan_strand& strand : plan.strands) {
      strands_.push_back({strand.first_step, strand.step_count, 0, Clock(plan.strands.size(), 0)});
    }
    for (const tutti_plan_wait& wait : plan.waits) is_waited_for_[wait.after] = true;
  }

  std::vector<CounterExample> run() {
    constexpr uint32_t kLoops = 2;  // scratch chunks of a loop and the next; what is later is after both
    for (loop_ = 0; loop_ < kLoops; ++loop_) {
      if (!run_loop()) {
        found_.push_back(circle());
        break;
      }
    }
    return std::move(found_);
  }

 private:
  using Clock = std::vector<uint32_t>;
  struct Strand {
    uint32_t first;
    uint32_t count;
    uint32_t done;  ///< steps of this loop
    Clock clock;
  };
  struct User {
    uint32_t strand;
    uint32_t position;  ///< the step's number in its strand, over all loops, from 1 on
    uint32_t step;
    uint32_t loop;
    Touch touch;
  };
  /// The latest accesses to a location of memory.
  struct Accesses {
    std::optional<User> writer;
    std::map<uint32_t, User> readers;  ///< since the last write, by strand: the last
  };

  /// False if strands wait for each other in a circle.
  bool run_loop() {
    complete_.clear();
    for (Strand& strand : strands_) strand.done = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t i = 0; i < strands_.size(); ++i) {
        while (advance(i)) moved = true;
      }
    }
    return std::all_of(strands_.begin(), strands_.end(), [](const Strand& s) { return s.done == s.count; });
  }

  bool advance(uint32_t index) {
    Strand& strand = strands_[index];
    if (strand.done == strand.count) return false;
    const uint32_t step = strand.first + strand.done;
    if (first_open_wait(step) != nullptr) return false;
    for (const tutti_plan_wait& wait : plan_.waits_of(step)) {
      const Clock& other = complete_.at(wait.after);
      for (size_t i = 0; i < other.size(); ++i) strand.clock[i] = std::max(strand.clock[i], other[i]);
    }
    const uint32_t position = loop_ * strand.count + strand.done + 1;
    if (loop_ == 0) check_parts(step);
    for (const Touch& touch : touches(plan_, plan_.steps[step], in_place_)) {
      if (loop_ == 0 || touch.buffer == TUTTI_BUFFER_SCRATCH) check({index, position, step, loop_, touch});
    }
    strand.clock[index] = position;
    ++strand.done;
    if (is_waited_for_[step]) complete_.emplace(step, strand.clock);
    return true;
  }

  const tutti_plan_wait* first_open_wait(uint32_t step) const {
    for (const tutti_plan_wait& wait : plan_.waits_of(step)) {
      if (!complete_.contains(wait.after)) return &wait;
    }
    return nullptr;
  }

  /// The list of steps may have the parts of a gather or scatter step apart from each other, and no longer shows this.
  void check_parts(uint32_t step) {
    const bool folds = (plan_.steps[step].flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0;
    const std::string what = folds ? "" : overlap(plan_, plan_.steps[step], in_place_);
    if (what.empty()) return;
    found_.push_back({StepPlace{plan_.rank, step}, fmt::format("rank {} step {}: {}", plan_.rank, step, what)});
  }

  void check(const User& user) {
    Accesses& latest = accesses_[user.touch.place];
    if (latest.writer) check_order(*latest.writer, user);
    const bool stays = user.touch.to_itself && !program::reduces(plan_.collective);
    if (!user.touch.writes || stays) {
      latest.readers.insert_or_assign(user.strand, user);
      return;
    }
    for (const auto& [strand, reader] : latest.readers) check_order(reader, user);
    latest.readers.clear();
    latest.writer = user;
  }

  void check_order(const User& earlier, const User& later) {
    if (earlier.strand == later.strand) return;
    if (strands_[later.strand].clock[earlier.strand] >= earlier.position) return;
    if (!named_.emplace(earlier.step, later.step).second) return;
    const std::string chunk = later.touch.text();
    const std::string other = earlier.touch.text();
    const std::string alias = other == chunk ? "" : fmt::format(", in place {}", other);
    found_.push_back(
        {StepPlace{plan_.rank, later.step},
         fmt::format("rank {} step {}: {} {}{}, which step {} of strand {} {}{}; no wait puts the two steps "
                     "in order",
                     plan_.rank, later.step, later.touch.writes ? "writes" : "reads", chunk, alias, earlier.step,
                     earlier.strand, earlier.touch.writes ? "writes" : "reads",
                     later.loop == earlier.loop ? "" : " in the loop before")});
  }

  /// The waits of a circle, from the first strand that is stuck on.
  CounterExample circle() const {
    const auto stuck = [](const Strand& strand) { return strand.done < strand.count; };
    const auto next_of = [](const Strand& strand) { return strand.first + strand.done; };
    const Strand* at = &*std::find_if(strands_.begin(), strands_.end(), stuck);
    std::vector<const Strand*> way;
    while (std::find(way.begin(), way.end(), at) == way.end()) {
      way.push_back(at);
      at = &strands_[plan_.strand_of(first_open_wait(next_of(*at))->after)];
    }
    std::vector<std::string> waits;
    for (auto strand = std::find(way.begin(), way.end(), at); strand != way.end(); ++strand) {
      const tutti_plan_wait& wait = *first_open_wait(next_of(**strand));
      waits.push_back(fmt::format("step {} waits for step {}", wait.step, wait.after));
    }
    return {StepPlace{plan_.rank, next_of(*at)},
            fmt::format("rank {}: strands wait for each other: {}", plan_.rank, fmt::join(waits, ", "))};
  }

  const Plan& plan_;
  bool in_place_;
  uint32_t loop_ = 0;
  std::vector<bool> is_waited_for_;
  std::vector<Strand> strands_;
  std::unordered_map<uint32_t, Clock> complete_;  ///< by step, of this loop: the clock at its end
  std::unordered_map<uint32_t, Accesses> accesses_;
  std::set<std::pair<uint32_t, uint32_t>> named_;
  std::vector<CounterExample> found_;
};

}  // namespace

std::vector<CounterExample> races(const Plan& plan, bool in_place) {
  if (plan.strands.empty()) return {};
  return Detector(plan, in_place).run();
}

}  // namespace tutti::program
