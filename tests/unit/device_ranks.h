// SPDX-License-Identifier: Apache-2.0
// Ranks of the executor's tests: each has shared memory, a plan, and works for the executor.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/host/driver.h"
#include "program/encode.h"
#include "program/passes/zero_copy.h"
#include "program/plan.h"
#include "progress/bell.h"
#include "transport/shm.h"
#include "tutti/device/host/team.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/required.h"

namespace tutti::test {

using sdk::PlanBuilder;

enum class Wire { kSimple, kSimpleSplit, kSimpleLong, kLL };
using Schedule = void (*)(PlanBuilder&, uint32_t rank, uint32_t ranks);

struct Case {
  uint32_t ranks;
  Schedule schedule;
  Wire wire;
  uint64_t count;
  bool in_place;
  uint64_t direct_minimum;
  bool exact = true;  ///< no sum is rounded
};

template <class Format>
int32_t run_wire(void* /*self*/, tutti_work* work) {
  device::HostTeam team(*work);
  return device::Executor<device::HostTeam, Format>(team, *work).run();
}

inline tutti_slot_layout layout_of(Wire wire) {
  // Small slots, so that even small cases go round the ring of slots and over several loops.
  tutti_slot_layout layout{};
  layout.slot_count = 4;
  layout.slot_bytes = 512;
  layout.slot_stride = wire == Wire::kLL ? 1024 + 64 : 512 + device::Simple::kHeaderBytes;
  layout.chunk_slots = 2;
  if (wire == Wire::kSimpleSplit) {
    // Messages of 1 to 3 slots, which do not divide the ring: some begin at its first slot before its end.
    layout.slot_count = 16;
    layout.slot_stride = 192;
    layout.message_slots = 3;
  }
  if (wire == Wire::kSimpleLong) {
    layout.slot_count = 8;
    layout.slot_bytes = 32 << 10;
    layout.slot_stride = layout.slot_bytes + device::Simple::kHeaderBytes;
  }
  return layout;
}

/// One rank: shared memory, plan, work.
struct Rank {
  std::unique_ptr<transport::Shm> shm;
  program::Plan plan;
  program::Program program;
  tutti_program view{};
  std::vector<tutti_connection*> connections;
  uint32_t abort = 0;
  tutti_fault fault{};  ///< fault of the latest call

  void make_plan(const Case& test, uint32_t rank) {
    const tutti_plan_request request{sizeof(tutti_plan_request), TUTTI_ALL_REDUCE, rank, 0, 0, 0};
    auto made = program::collect([&](const tutti_plan_sink* sink) {
      PlanBuilder builder(request, test.ranks, test.ranks);
      test.schedule(builder, rank, test.ranks);
      return builder.emit(*sink);
    });
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    plan = *std::move(made);
    program::mark_stable(plan, test.in_place);
    program = program::encode(plan);
    view = program.view();
    for (const tutti_program_step& step : program.steps) {
      for (const tutti_program_peer& peer : program.recv(step)) {
        connections.push_back(shm->receiver({peer.rank, transport::Traffic::kCollective, 0, 0}));
      }
      for (const tutti_program_peer& peer : program.send(step)) {
        connections.push_back(shm->sender({peer.rank, transport::Traffic::kCollective, 0, 0}));
      }
    }
  }

  /// The connection of the first send or receive of the program.
  tutti_connection* first(bool sends) const {
    for (const tutti_program_step& step : program.steps) {
      if (sends && step.send_count > 0) return connections[step.send_begin];
      if (!sends && step.recv_count > 0) return connections[step.recv_begin];
    }
    return nullptr;
  }

  tutti_work work_of(const Case& test, const float* input, float* output, uint64_t call) {
    tutti_work work{};
    work.struct_size = sizeof work;
    work.data_type = TUTTI_FLOAT32;
    work.reduce_op = TUTTI_SUM;
    work.element_bytes = sizeof(float);
    work.program = &view;
    work.connections = connections.data();
    work.input = input;
    work.output = output;
    work.count = work.end = test.count;
    work.slice_elements = layout_of(test.wire).slot_bytes / sizeof(float);
    const uint64_t even = (test.count + test.ranks - 1) / test.ranks;
    work.chunk_elements = std::clamp<uint64_t>((even + 15) / 16 * 16, 16, work.slice_elements * 2);
    work.check = 1;
    work.signature = {{1, static_cast<uint32_t>(test.count)}};
    work.call = call;
    work.direct_minimum = test.direct_minimum;
    work.fences = progress::sleepers_make_barriers() ? 0 : 1;
    work.abort = &abort;
    return work;
  }

  backend::Driver::Outcome all_reduce(const Case& test, const float* input, float* output, uint64_t call) {
    tutti_work work = work_of(test, input, output, call);
    static constexpr tutti_protocol_ops kSimple{sizeof(tutti_protocol_ops), 0,       nullptr, nullptr,
                                                run_wire<device::Simple>,   nullptr, nullptr};
    static constexpr tutti_protocol_ops kLL{sizeof(tutti_protocol_ops), 0,       nullptr, nullptr,
                                            run_wire<device::LL>,       nullptr, nullptr};
    backend::Job job{&work, test.wire == Wire::kLL ? &kLL : &kSimple, nullptr, nullptr, false, {}};
    backend::Driver driver({50, 2, {}, {}, std::chrono::seconds(3), &shm->bell()});
    const backend::Driver::Outcome outcome = driver.run({&job, 1});
    fault = work.fault;
    return outcome;
  }
};

inline std::vector<Rank> make_ranks(const Case& test) {
  std::vector<uint32_t> all(test.ranks);
  std::iota(all.begin(), all.end(), 0u);
  std::vector<Rank> ranks(test.ranks);
  std::vector<transport::Shm::Peer> peers;
  for (uint32_t r = 0; r < test.ranks; ++r) {
    ranks[r].shm = required(transport::Shm::create(r, all, {1, {layout_of(test.wire)}}));
    peers.push_back({ranks[r].shm->address(), reinterpret_cast<uint64_t>(ranks[r].shm->token_address())});
  }
  for (uint32_t r = 0; r < test.ranks; ++r) {
    const Status attached = ranks[r].shm->attach(peers, transport::Shm::SingleCopy::kAuto);
    EXPECT_TRUE(attached.ok()) << attached.to_string();
    ranks[r].make_plan(test, r);
  }
  return ranks;
}

}  // namespace tutti::test
