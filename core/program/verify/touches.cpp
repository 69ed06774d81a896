// SPDX-License-Identifier: Apache-2.0
#include "program/verify/touches.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/passes/alias.h"

namespace tutti::program {
namespace {

/// Gathers the touches of one step.
class Gatherer {
 public:
  Gatherer(const Plan& plan, const tutti_plan_step& step, bool in_place)
      : plan_(plan),
        step_(step),
        range_(plan.range(step)),
        in_place_(in_place),
        gathers_((step.flags & TUTTI_STEP_GATHER) != 0),
        scatters_((step.flags & TUTTI_STEP_SCATTER) != 0) {}

  std::vector<Touch> run() {
    for (uint32_t i = 0; i < range_.count; ++i) {
      take_value(i);
      for (const tutti_plan_peer& peer : plan_.send(step_)) {
        if (scatters_) read(peer.chunk, i);
      }
      for (const tutti_plan_peer& peer : plan_.recv(step_)) {
        if (gathers_) write(gather_buffer_of(step_), peer.chunk, i);
      }
    }
    return std::move(touches_);
  }

 private:
  /// The own chunk and the chunk that the value is written to.
  void take_value(uint32_t i) {
    const bool writes = step_.destination != TUTTI_BUFFER_NONE;
    const bool is_used = writes || (step_.send_count > 0 && !scatters_) || (step_.recv_count > 0 && !gathers_);
    const bool reads = is_used && step_.source != TUTTI_BUFFER_NONE;
    if (reads) read(step_.source_chunk, i);
    if (!writes) return;
    const size_t source = touches_.size();
    write(step_.destination, step_.destination_chunk, i);
    if (reads) touches_.back().to_itself = touches_[source - 1].place == touches_.back().place;
  }

  void read(uint32_t first, uint32_t i) {
    const uint32_t chunk = plan_.chunk_at(step_.source, first, range_.source_stride, i);
    touches_.push_back({place_of(plan_, in_place_, step_.source, chunk), step_.source, chunk, false, false});
  }
  void write(uint8_t buffer, uint32_t first, uint32_t i) {
    const uint32_t chunk = plan_.chunk_at(buffer, first, range_.destination_stride, i);
    touches_.push_back({place_of(plan_, in_place_, buffer, chunk), buffer, chunk, true, false});
  }

  const Plan& plan_;
  const tutti_plan_step& step_;
  const tutti_plan_range range_;
  const bool in_place_;
  const bool gathers_;
  const bool scatters_;
  std::vector<Touch> touches_;
};

}  // namespace

std::string Touch::text() const {
  const char* name = buffer == TUTTI_BUFFER_INPUT ? "input" : buffer == TUTTI_BUFFER_SCRATCH ? "scratch" : "output";
  return fmt::format("{} chunk {}", name, chunk);
}

std::vector<Touch> touches(const Plan& plan, const tutti_plan_step& step, bool in_place) {
  return Gatherer(plan, step, in_place).run();
}

std::string overlap(const Plan& plan, const tutti_plan_step& step, bool in_place) {
  std::vector<Touch> written = touches(plan, step, in_place);
  const auto first_write =
      std::stable_partition(written.begin(), written.end(), [](const Touch& touch) { return !touch.writes; });
  const std::vector<Touch> read(written.begin(), first_write);
  written.erase(written.begin(), first_write);
  std::erase_if(written, [](const Touch& touch) { return touch.to_itself; });
  const auto below = [](const Touch& a, const Touch& b) { return a.place < b.place; };
  std::stable_sort(written.begin(), written.end(), below);
  const auto same = [](const Touch& a, const Touch& b) { return a.place == b.place; };
  if (const auto twice = std::adjacent_find(written.begin(), written.end(), same); twice != written.end()) {
    return fmt::format("writes {} twice", twice->text());
  }
  for (const Touch& touch : read) {
    const auto found = std::lower_bound(written.begin(), written.end(), touch, below);
    if (found != written.end() && same(*found, touch)) return fmt::format("both reads and writes {}", found->text());
  }
  return {};
}

}  // namespace tutti::program
