// SPDX-License-Identifier: Apache-2.0
#include "unit/program_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/launch_builder.h"
#include "unit/plan_support.h"

namespace tutti::test {

using program::Plan;

namespace {

constexpr uint8_t kUntouched = 0xee;
constexpr size_t kGap = 32;  // between input and output, and behind them

bool has_output(const Plan& plan) {
  return plan.rank == plan.root || (plan.collective != Collective::kReduce && plan.collective != Collective::kGather);
}

}  // namespace

tutti_slot_layout layout_of(uint32_t slots, uint64_t slot_bytes, uint32_t chunk_slots, uint32_t overlaps) {
  tutti_slot_layout layout{};
  layout.struct_size = sizeof layout;
  layout.slot_count = slots;
  layout.slot_bytes = layout.slot_stride = slot_bytes;
  layout.chunk_slots = chunk_slots;
  layout.overlaps = overlaps;
  return layout;
}

TestCall::TestCall(const std::vector<Plan>& plans, bool in_place, uint64_t bytes, uint32_t ctas,
                   const tutti_slot_layout& layout, bool registered)
    : plans_(plans), bytes_(bytes) {
  auto fit = backend::fit_kernels({plans}, layout);
  if (!fit.ok()) return;
  call_.layout = fit->layout;
  auto programs = backend::lower_channels(fit->plans, in_place, registered, fit->layout);
  if (!programs.ok()) return;
  call_.programs = std::move(programs->front());
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    const std::vector<program::Strands> strands = backend::strands_of_rank(fit->plans, rank);
    call_.strands.push_back(strands.empty() ? program::Strands{} : strands.front());
  }
  call_.collective = plans.front().collective;
  call_.block_bytes = bytes;
  call_.registered = registered;
  call_.cut = program::cut(bytes, ctas, call_.programs[0], call_.layout);
  for (const Plan& plan : plans) add_memory(plan, in_place);
  for (const Plan& plan : plans) point_to_memory(plan, in_place);
}

std::string TestCall::check() const {
  for (size_t rank = 0; rank < plans_.size(); ++rank) {
    const Plan& plan = plans_[rank];
    std::vector<uint8_t> expected = before_[rank];
    if (has_output(plan)) {
      const size_t begin = static_cast<size_t>(call_.outputs[rank].data() - memory_[rank].data());
      for (size_t at = 0; at < plan.output_blocks * bytes_; ++at) expected[begin + at] = result(plan, at);
    }
    const auto wrong = std::mismatch(expected.begin(), expected.end(), memory_[rank].begin());
    if (wrong.first == expected.end()) continue;
    return fmt::format("rank {}, byte {} of its memory: {}, not {}", rank, wrong.first - expected.begin(),
                       *wrong.second, *wrong.first);
  }
  return {};
}

/// The begin of memory, chosen so that outputs of ranks have different alignments.
size_t TestCall::shift(const Plan& plan) const {
  return call_.registered && bytes_ % 2 == 0 ? plan.rank * 4 % 16 : 0;
}

void TestCall::add_memory(const Plan& plan, bool in_place) {
  const size_t in = plan.input_blocks * bytes_;
  const size_t out = plan.output_blocks * bytes_;
  std::vector<uint8_t> memory(shift(plan) + (in_place ? std::max(in, out) + kGap : in + out + 2 * kGap), kUntouched);
  const size_t input_at = shift(plan) + (in_place && in < out ? plan.rank * bytes_ : 0);
  uint64_t random = plan.rank * 0x9e3779b97f4a7c15u + bytes_;
  for (size_t i = 0; i < in; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    memory[input_at + i] = static_cast<uint8_t>(random >> 56);
  }
  inputs_.emplace_back(memory.begin() + static_cast<std::ptrdiff_t>(input_at),
                       memory.begin() + static_cast<std::ptrdiff_t>(input_at + in));
  before_.push_back(memory);
  memory_.push_back(std::move(memory));
}

void TestCall::point_to_memory(const Plan& plan, bool in_place) {
  const size_t in = plan.input_blocks * bytes_;
  const size_t out = plan.output_blocks * bytes_;
  const size_t input_at = shift(plan) + (in_place && in < out ? plan.rank * bytes_ : 0);
  const size_t output_at = shift(plan) + (!in_place ? in + kGap : out < in ? plan.rank * bytes_ : 0);
  call_.inputs.push_back(std::span(memory_[plan.rank]).subspan(input_at, in));
  call_.outputs.push_back(std::span(memory_[plan.rank]).subspan(output_at, out));
}

uint8_t TestCall::result(const Plan& plan, size_t at) const {
  const size_t block = at / bytes_;
  const size_t rest = at % bytes_;
  const size_t own = plan.rank * bytes_;
  switch (plan.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      return sum(at);
    case Collective::kReduceScatter:
      return sum(own + at);
    case Collective::kBroadcast:
      return inputs_[plan.root][at];
    case Collective::kScatter:
      return inputs_[plan.root][own + at];
    case Collective::kAllToAll:
      return inputs_[block][own + rest];
    default:
      return inputs_[block][rest];
  }
}

uint8_t TestCall::sum(size_t at) const {
  uint32_t sum = 0;
  for (const auto& input : inputs_) sum += input[at];
  return static_cast<uint8_t>(sum);
}

std::vector<Plan> uneven_connections() {
  using sdk::Buffer;
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    plans.push_back(write_plan(TUTTI_BROADCAST, 3, rank, 3, [&](sdk::PlanBuilder& plan) {
      for (const uint32_t chunk : {0u, 1u, 2u}) {
        if (rank == 0) plan.step().own(Buffer::kInput, chunk).to_output(chunk).send(1);
        if (rank == 1) plan.step().recv(0).to_output(chunk);
      }
      if (rank == 0) plan.step().own(Buffer::kOutput, 1).send(2);
      if (rank == 1) plan.step().own(Buffer::kOutput, 0).send(2);
      if (rank == 1) plan.step().own(Buffer::kOutput, 2).scatter(2, 2);
      if (rank != 2) return;
      plan.step().recv(1).to_output(0);
      plan.step().recv(0).to_output(1);
      plan.step().gather(1, 2);
    }));
  }
  return plans;
}

std::vector<Plan> uneven_waits() {
  using sdk::Buffer;
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    plans.push_back(write_plan(TUTTI_BROADCAST, 3, rank, 4, [&](sdk::PlanBuilder& plan) {
      for (const uint32_t chunk : {0u, 1u, 2u, 3u}) {
        const bool goes_round = chunk == 1;
        auto&& step = plan.step();
        if (rank == 0) step.own(Buffer::kInput, chunk).send(2);
        if (rank == 0 && !goes_round) step.send(1);
        if (rank != 0) step.recv(rank == 1 && goes_round ? 2 : 0);
        if (rank == 2 && goes_round) step.send(1);
        step.to_output(chunk);
      }
    }));
  }
  return plans;
}

}  // namespace tutti::test
