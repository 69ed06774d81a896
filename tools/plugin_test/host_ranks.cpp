// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/host_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

#include "program/encode.h"
#include "program/passes/zero_copy.h"
#include "tools/check/compare.h"
#include "tools/check/random_input.h"
#include "tools/check/schedules.h"
#include "tools/plugin_test/calls.h"
#include "transport/connection.h"
#include "tutti/communicator.h"
#include "tutti/sdk/plan_builder.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr size_t kMargin = 256;
constexpr uint64_t kLine = 64;
constexpr double kSeconds = 10;  // of a call
constexpr uint32_t kSpins = 50;

using sdk::Buffer;
using sdk::PlanBuilder;

void one_shot(PlanBuilder& plan, uint32_t rank, uint32_t ranks) {
  auto& sends = plan.step().own(Buffer::kInput, 0);
  for (uint32_t k = 1; k < ranks; ++k) sends.send((rank + k) % ranks);
  auto& fold = plan.step().own(Buffer::kInput, 0).final().to_output(0);
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer != rank) fold.recv(peer);
  }
}

void all_gather(PlanBuilder& plan, uint32_t rank, uint32_t ranks) {
  auto& own = plan.step().own(Buffer::kInput, 0).to_output(rank);
  for (uint32_t k = 1; k < ranks; ++k) own.send((rank + k) % ranks);
  auto& gather = plan.step();
  for (uint32_t k = 1; k < ranks; ++k) gather.gather((rank + k) % ranks, (rank + k) % ranks);
}

program::Program make_program(const HostCall& call, uint32_t rank) {
  const auto ranks = static_cast<uint32_t>(call.problem.rank_count);
  const tutti_plan_request request{sizeof request, static_cast<uint32_t>(call.problem.collective), rank, 0, 0, 0};
  const bool chunked = call.schedule == Schedule::kRing || call.schedule == Schedule::kTwoShot;
  PlanBuilder builder(request, ranks, chunked ? ranks : 1);
  constexpr std::array kWriters = {check::ring_all_reduce, one_shot, check::two_shot_all_reduce, all_gather};
  kWriters[static_cast<size_t>(call.schedule)](builder, rank, ranks);
  auto plan = program::collect([&](const tutti_plan_sink* sink) { return builder.emit(*sink); });
  if (!plan.ok()) throw std::logic_error("a plan of the kit is wrong: " + plan.status().to_string());
  program::mark_stable(*plan, call.in_place);
  return program::encode(*plan);
}

std::byte* at_line(std::vector<std::byte>& memory, size_t offset) {
  const auto begin = reinterpret_cast<uintptr_t>(memory.data()) + kMargin;
  return reinterpret_cast<std::byte*>((begin + kLine - 1) / kLine * kLine + offset);
}

/// The bytes outside of [begin, begin + bytes) that were written.
size_t written_beyond(const std::vector<std::byte>& memory, const std::byte* begin, size_t bytes) {
  const auto before = static_cast<size_t>(begin - memory.data());
  return check::count_written(memory.data(), before) +
         check::count_written(begin + bytes, memory.size() - before - bytes);
}

}  // namespace

/// One direction: memory that both ends see, or two memories between which carry() moves the slots.
struct HostRanks::Link {
  struct alignas(kLine) Line {
    std::byte bytes[kLine];
  };
  std::vector<Line> near, far;
  std::vector<uint64_t> sizes;
  tutti_connection sender{}, receiver{};
  uint64_t carried = 0;
};

std::string_view to_string(Schedule schedule) {
  constexpr std::array<std::string_view, 4> kNames = {"ring", "one step that folds all", "scatter, fold and gather",
                                                      "gather"};
  return kNames[static_cast<size_t>(schedule)];
}

std::string to_string(const HostCall& call) {
  return fmt::format("{}, plan '{}'{}{}, input at {} and output at {} bytes behind a line", to_string(call.problem),
                     to_string(call.schedule), call.in_place ? ", in place" : "",
                     call.direct ? ", the receiver reads the sender's memory" : "", call.input_offset,
                     call.in_place ? call.input_offset : call.output_offset);
}

HostRanks::HostRanks(Trial& trial, uint32_t link, uint32_t ranks, uint32_t slot_count, uint64_t slot_bytes)
    : trial_(trial), kind_(link), count_(ranks), layout_(layout_of(trial, link, slot_count, slot_bytes)) {
  const size_t lines = (transport::connection_bytes(layout_) + kLine - 1) / kLine;
  for (uint32_t pair = 0; pair < ranks * ranks; ++pair) {
    auto made = std::make_unique<Link>();
    const bool is_remote = link == TUTTI_LINK_NETWORK;
    made->near.resize(lines);
    if (is_remote) made->far.resize(lines);
    auto& far = is_remote ? made->far : made->near;
    made->sender = transport::connection_at(reinterpret_cast<uint8_t*>(made->near.data()), layout_, pair % ranks);
    made->receiver = transport::connection_at(reinterpret_cast<uint8_t*>(far.data()), layout_, pair / ranks);
    made->sizes.resize(layout_.slot_count);
    for (tutti_connection* const end : {&made->sender, &made->receiver}) {
      end->peer_bell = &bell_;
      end->flags = is_remote ? TUTTI_CONNECTION_NETWORK : TUTTI_CONNECTION_SHARED_SPACE;
    }
    if (is_remote) made->sender.sizes = made->sizes.data();
    links_.push_back(std::move(made));
  }
}

HostRanks::~HostRanks() = default;

HostRanks::Link& HostRanks::link(uint32_t from, uint32_t to) {
  return *links_[from * count_ + to];
}

void HostRanks::carry() {
  if (kind_ != TUTTI_LINK_NETWORK) return;
  for (const auto& one : links_) {
    for (; one->carried < *one->sender.tail; ++one->carried) {
      const uint64_t slot = one->carried % layout_.slot_count;
      std::memcpy(one->receiver.slots + slot * layout_.slot_stride, one->sender.slots + slot * layout_.slot_stride,
                  std::min(one->sizes[slot], layout_.slot_stride));
    }
    *one->receiver.tail = one->carried;
    *one->sender.head = *one->receiver.head;
  }
}

void HostRanks::bind(Rank& rank, const HostCall& call, uint32_t index) {
  const check::Problem& problem = call.problem;
  const uint64_t bytes = size_of(problem.type);
  tutti_work& work = rank.work;
  work = {};
  work.struct_size = sizeof work;
  work.data_type = static_cast<uint32_t>(problem.type);
  work.reduce_op = static_cast<uint32_t>(problem.op);
  work.element_bytes = static_cast<uint32_t>(bytes);
  work.program = &rank.view;
  work.connections = rank.connections.data();
  work.input = rank.in;
  work.output = rank.out;
  work.count = work.end = problem.count;
  const uint64_t line = kLine / bytes;
  work.slice_elements = layout_.slot_bytes / kLine * line;
  const uint64_t even = (problem.count + rank.view.chunks - 1) / rank.view.chunks;
  const uint64_t most = work.slice_elements * layout_.chunk_slots / line * line;
  work.chunk_elements = std::clamp((even + line - 1) / line * line, line, std::max(line, most));
  if (problem.op == ReduceOp::kPreMulSum) {
    work.scalar = pre_mul_sum(problem.type, check::pre_mul_factor(problem.type, static_cast<int>(index))).scalar;
  }
  work.divisor = problem.op == ReduceOp::kAvg ? count_ : 0;
  work.check = 1;
  work.signature = {{static_cast<uint32_t>(calls_), static_cast<uint32_t>(problem.count)}};
  work.call = calls_;
  work.direct_minimum = call.direct ? kLine : 0;
  work.abort = &rank.abort;
  work.spins = kSpins;
  work.fences = 1;
}

std::vector<std::unique_ptr<HostRanks::Rank>> HostRanks::prepare(const HostCall& call) {
  ++calls_;
  const check::Problem& problem = call.problem;
  const size_t element = size_of(problem.type);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (uint32_t index = 0; index < count_; ++index) {
    auto rank = std::make_unique<Rank>();
    rank->program = make_program(call, index);
    rank->view = rank->program.view();
    for (const tutti_program_step& step : rank->program.steps) {
      for (const tutti_program_peer& peer : rank->program.recv(step)) {
        rank->connections.push_back(&link(peer.rank, index).receiver);
      }
      for (const tutti_program_peer& peer : rank->program.send(step)) {
        rank->connections.push_back(&link(index, peer.rank).sender);
      }
    }
    const int number = static_cast<int>(index);
    rank->input.resize(check::input_elements(problem, number) * element + 3 * kMargin);
    rank->output.resize(check::output_elements(problem, number) * element + 3 * kMargin);
    check::poison(rank->input.data(), rank->input.size());
    check::poison(rank->output.data(), rank->output.size());
    rank->in = at_line(rank->input, call.input_offset);
    rank->out = call.in_place ? rank->in : at_line(rank->output, call.output_offset);
    check::fill_input(problem, number, 0, check::input_elements(problem, number), rank->in);
    bind(*rank, call, index);
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

int32_t HostRanks::step(Rank& rank) {
  return trial_.call("run", [&] { return trial_.ops<tutti_protocol_ops>().run(trial_.self(), &rank.work); });
}

HostOutcome HostRanks::run(const HostCall& call) {
  const auto ranks = prepare(call);
  std::vector<bool> done(count_, false);
  const int64_t begin = now_ns();
  while (std::count(done.begin(), done.end(), false) > 0) {
    for (uint32_t index = 0; index < count_; ++index) {
      if (done[index]) continue;
      const int32_t code = step(*ranks[index]);
      carry();
      if (code == TUTTI_OK) {
        done[index] = true;
      } else if (code != TUTTI_AGAIN) {
        trial_.violate("PRO-7", fmt::format("{}: run of rank {} fails: {}", to_string(call), index,
                                            to_string(static_cast<Code>(code))));
      }
    }
    if (static_cast<double>(now_ns() - begin) * 1e-9 > kSeconds) {
      trial_.violate("PRO-7", fmt::format("{}: rank {} has not ended after {} s", to_string(call),
                                          std::find(done.begin(), done.end(), false) - done.begin(), kSeconds));
    }
  }
  HostOutcome outcome;
  const size_t element = size_of(call.problem.type);
  for (uint32_t index = 0; index < count_; ++index) {
    const Rank& rank = *ranks[index];
    const int number = static_cast<int>(index);
    const size_t bytes = check::output_elements(call.problem, number) * element;
    const auto reference = check::Reference::for_rank(call.problem, number);
    const auto comparison = check::compare(call.problem, reference, number, rank.out);
    if (comparison.wrong > 0 && outcome.wrong.empty()) {
      outcome.wrong =
          fmt::format("{}: rank {}: {} wrong, {}", to_string(call), index, comparison.wrong, comparison.first);
    }
    const auto& memory = call.in_place ? rank.input : rank.output;
    const size_t beyond = written_beyond(memory, rank.out, bytes);
    if (beyond > 0)
      outcome.beyond = fmt::format("{}: rank {}: {} bytes beside the output", to_string(call), index, beyond);
    if (!call.in_place) {
      std::vector<std::byte> input(check::input_elements(call.problem, number) * element);
      check::fill_input(call.problem, number, 0, input.size() / element, input.data());
      if (!input.empty() && std::memcmp(input.data(), rank.in, input.size()) != 0) {
        outcome.beyond = fmt::format("{}: rank {}: the input was changed", to_string(call), index);
      }
    }
    outcome.outputs.emplace_back(rank.out, rank.out + bytes);
  }
  return outcome;
}

}  // namespace tutti::tools::plugin_test
