// SPDX-License-Identifier: Apache-2.0
// The executor and both wires over shared memory: ranks as threads, plans made here, results compared with sums
// computed here.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "backend/host/driver.h"
#include "progress/bell.h"
#include "tools/check/schedules.h"
#include "tutti/device/host/team.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/device_ranks.h"

namespace tutti::test {
namespace {

using backend::Driver;
using backend::Job;
using sdk::Buffer;

#if defined(__SANITIZE_THREAD__)
constexpr bool kThorough = false;  // ThreadSanitizer needs the interleavings, not the sizes
#else
constexpr bool kThorough = true;
#endif

void expect_sums(const Case& test) {
  constexpr uint32_t kCalls = kThorough ? 20 : 6;
  std::random_device source;
  const auto seed = source();
  SCOPED_TRACE(testing::Message() << "ranks " << test.ranks << " count " << test.count << " seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::vector<float>> inputs(test.ranks * kCalls, std::vector<float>(test.count));
  for (auto& input : inputs) {
    for (float& value : input) {
      value = static_cast<float>(static_cast<int>(random() % 2001) - 1000);  // sums are exact
      if (!test.exact) value *= 0.1f;
    }
  }
  std::vector<std::vector<float>> outputs(test.ranks * kCalls, std::vector<float>(test.count, -7.5f));
  std::vector<Rank> ranks = make_ranks(test);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < test.ranks; ++r) {
    threads.emplace_back([&, r] {
      for (uint32_t call = 0; call < kCalls; ++call) {
        auto& output = outputs[call * test.ranks + r];
        if (test.in_place) output = inputs[call * test.ranks + r];
        const float* input = test.in_place ? output.data() : inputs[call * test.ranks + r].data();
        EXPECT_EQ(ranks[r].all_reduce(test, input, output.data(), call + 1).code, TUTTI_OK);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (uint32_t call = 0; call < kCalls; ++call) {
    std::vector<float> expected(test.count);
    for (uint32_t r = 0; r < test.ranks; ++r) {
      for (uint64_t i = 0; i < test.count; ++i) expected[i] += inputs[call * test.ranks + r][i];
    }
    for (uint32_t r = 0; r < test.ranks; ++r)
      ASSERT_EQ(outputs[call * test.ranks + r], expected) << "call " << call << " rank " << r;
  }
}

TEST(Device, AllReduceIsTheSum) {
  for (const Schedule schedule : {&check::ring_all_reduce, &check::two_shot_all_reduce}) {
    for (const Wire wire : {Wire::kSimple, Wire::kSimpleSplit, Wire::kLL}) {
      for (const uint32_t ranks : {2u, 3u, 5u}) {
        if (!kThorough && ranks == 5) continue;
        for (const uint64_t count : {1u, 17u, 1000u, 4097u}) {
          if (!kThorough && count != 1000) continue;
          for (const bool in_place : {false, true}) {
            for (const uint64_t direct : {0u, 64u}) expect_sums({ranks, schedule, wire, count, in_place, direct});
          }
        }
      }
    }
  }
}

// Sums that are not exact show the order of their operands.
TEST(Device, AllReduceFoldsInOrderOfRanks) {
  for (const Wire wire : {Wire::kSimple, Wire::kLL}) {
    for (const uint32_t ranks : {3u, 5u})
      expect_sums({ranks, &check::two_shot_all_reduce, wire, 1000, false, 0, false});
  }
}

// The flag of a message's last word signals all words: they must not become visible in a different order. Lengths that
// are multiples of 16 bytes end in whole vectors.
TEST(Device, LLMessagesArriveWhole) {
  constexpr uint64_t kMessages = kThorough ? 2'000'000 : 1'000;
  constexpr uint64_t kMaxElements = 32;
  const Case test{2, &check::ring_all_reduce, Wire::kLL, kMaxElements, false, 0};
  std::vector<Rank> ranks = make_ranks(test);
  tutti_connection& to = *ranks[0].first(true);
  tutti_connection& from = *ranks[1].first(false);
  const auto length = [](uint64_t message) { return 4 + message % (kMaxElements / 4) * 4; };
  tutti_work work{};
  work.data_type = TUTTI_UINT32;
  work.element_bytes = sizeof(uint32_t);
  work.abort = &ranks[0].abort;

  std::thread sender([&, work]() mutable {
    device::HostTeam team(work);
    tutti_connection* const peer = &to;
    std::array<uint32_t, kMaxElements> data{};
    for (uint64_t message = 0; message < kMessages; ++message) {
      data.fill(static_cast<uint32_t>(message));
      device::Operands operands;
      operands.own = reinterpret_cast<const uint8_t*>(data.data());
      operands.send = &peer;
      operands.send_count = 1;
      operands.elements = length(message);
      device::place_message(to, device::LL::slot_bytes(operands.elements * sizeof(uint32_t)));
      while (!device::slot_free(team, to)) std::this_thread::yield();
      team.move_ll(work, operands);
      device::LL::publish(team, work, to, operands.elements * sizeof(uint32_t));
    }
  });
  device::HostTeam team(work);
  tutti_connection* const peer = &from;
  std::array<uint32_t, kMaxElements> data{};
  uint64_t wrong = 0;
  for (uint64_t message = 0; message < kMessages; ++message) {
    device::Operands operands;
    operands.output = reinterpret_cast<uint8_t*>(data.data());
    operands.recv = &peer;
    operands.recv_count = 1;
    operands.elements = length(message);
    device::place_message(from, device::LL::slot_bytes(operands.elements * sizeof(uint32_t)));
    for (int poll = 0; !device::LL::filled(team, from, operands.elements * sizeof(uint32_t)); ++poll) {
      if (poll % 256 == 255) std::this_thread::yield();  // the sender may need this processor
    }
    team.move_ll(work, operands);
    device::release_slot(team, from);
    const auto end = data.begin() + static_cast<ptrdiff_t>(operands.elements);
    wrong += std::count(data.begin(), end, static_cast<uint32_t>(message)) == end - data.begin() ? 0 : 1;
  }
  sender.join();
  EXPECT_EQ(wrong, 0u);
}

/// One connection of the LL wire, of which this thread plays both ends.
class LLPair {
 public:
  LLPair() : ranks_(make_ranks({2, &check::ring_all_reduce, Wire::kLL, kElements, false, 0})), team_(work_) {
    work_.data_type = TUTTI_UINT32;
    work_.element_bytes = sizeof(uint32_t);
  }
  /// As if both had come to this step.
  void jump_to(uint64_t step) {
    for (tutti_connection* end : {&to(), &from()}) {
      end->step = end->seen = step;
      *end->head = *end->tail = step;
    }
  }
  void send(uint64_t elements) {
    device::Operands operands;
    operands.own = reinterpret_cast<const uint8_t*>(data_.data());
    tutti_connection* const peer = &to();
    operands.send = &peer;
    operands.send_count = 1;
    operands.elements = elements;
    device::place_message(to(), device::LL::slot_bytes(elements * sizeof(uint32_t)));
    ASSERT_TRUE(device::slot_free(team_, to()));
    team_.move_ll(work_, operands);
    device::LL::publish(team_, work_, to(), elements * sizeof(uint32_t));
  }
  bool arrived(uint64_t elements) {
    device::place_message(from(), device::LL::slot_bytes(elements * sizeof(uint32_t)));
    return device::LL::filled(team_, from(), elements * sizeof(uint32_t));
  }
  void release() { device::release_slot(team_, from()); }
  uint32_t slots() { return to().slot_count; }
  static constexpr uint64_t kElements = 32;

 private:
  tutti_connection& to() { return *ranks_[0].first(true); }
  tutti_connection& from() { return *ranks_[1].first(false); }
  std::vector<Rank> ranks_;
  tutti_work work_{};
  device::HostTeam team_;
  std::array<uint32_t, kElements> data_{};
};

// Flags are numbers of 32 bits: a word that was last written 2^32 steps ago must not look new.
TEST(Device, LLWordsOfEarlierRoundsOfFlagsAreNotTakenForNew) {
  LLPair pair;
  pair.jump_to(pair.slots() + 1);
  pair.send(LLPair::kElements);
  ASSERT_TRUE(pair.arrived(LLPair::kElements));
  pair.release();
  constexpr uint64_t kRound = uint64_t{1} << 32;
  pair.jump_to(kRound - 1 - pair.slots());
  for (uint32_t step = 0; step < 2 * pair.slots() + 2; ++step) {
    pair.send(1);
    EXPECT_FALSE(pair.arrived(LLPair::kElements)) << "rewritten flags must not look like a longer message";
    ASSERT_TRUE(pair.arrived(1));
    pair.release();
  }
  // The step with the flag, and the slot, of the first message.
  EXPECT_FALSE(pair.arrived(LLPair::kElements)) << "nothing was sent";
  pair.send(LLPair::kElements);
  EXPECT_TRUE(pair.arrived(LLPair::kElements));
}

TEST(Device, LLTakesNoMemoryThatWasNeverWrittenForTheFlagZero) {
  LLPair pair;
  pair.jump_to((uint64_t{1} << 32) - 1 - pair.slots());
  for (uint32_t step = 0; step < pair.slots(); ++step) {
    pair.send(1);
    ASSERT_TRUE(pair.arrived(1));
    pair.release();
  }
  // The flag of this step is 0, as in new memory.
  EXPECT_FALSE(pair.arrived(LLPair::kElements));
  EXPECT_FALSE(pair.arrived(1));
  pair.send(1);
  EXPECT_FALSE(pair.arrived(LLPair::kElements));
  EXPECT_TRUE(pair.arrived(1));
}

/// Three ranks and a work, for steps that a test makes by hand.
class Steps {
 public:
  explicit Steps(Wire wire) : wire_(wire), ranks_(make_ranks({3, &check::two_shot_all_reduce, wire, 4, false, 0})) {
    work_.data_type = TUTTI_FLOAT32;
    work_.reduce_op = TUTTI_SUM;
    work_.element_bytes = sizeof(float);
    work_.abort = &ranks_[0].abort;
  }
  tutti_work& work() { return work_; }
  tutti_connection& to(uint32_t from, uint32_t rank) {
    return *ranks_[from].shm->sender({rank, transport::Traffic::kCollective, 0, 0});
  }
  tutti_connection& from(uint32_t peer, uint32_t rank) {
    return *ranks_[rank].shm->receiver({peer, transport::Traffic::kCollective, 0, 0});
  }
  uint64_t slot_bytes(uint64_t bytes) const {
    return wire_ == Wire::kLL ? device::LL::slot_bytes(bytes) : device::Simple::slot_bytes(bytes);
  }
  int32_t move(const device::Operands& operands) {
    device::HostTeam team(work_);
    return wire_ == Wire::kLL ? team.move_ll(work_, operands) : team.move_simple(work_, operands);
  }
  void send(const float& value, uint32_t from, uint32_t rank, bool stable) {
    tutti_connection* const peer = &to(from, rank);
    device::Operands operands;
    operands.own = reinterpret_cast<const uint8_t*>(&value);
    operands.send = &peer;
    operands.send_count = 1;
    operands.elements = 1;
    operands.stable = stable;
    device::place_message(*peer, slot_bytes(sizeof value));
    EXPECT_EQ(move(operands), TUTTI_OK);
  }

 private:
  Wire wire_;
  std::vector<Rank> ranks_;
  tutti_work work_{};
};

// Sums of floats show the order of their operands.
TEST(Device, TheOwnValueIsFoldedAtItsPlace) {
  for (const Wire wire : {Wire::kSimple, Wire::kLL}) {
    for (const uint32_t position : {0u, 1u, 2u}) {
      Steps steps(wire);
      steps.send(1e8f, 0, 2, false);
      steps.send(-1e8f, 1, 2, false);
      const float own = 1;
      float sum = -7.5f;
      std::array<tutti_connection*, 2> peers = {&steps.from(0, 2), &steps.from(1, 2)};
      for (tutti_connection* peer : peers) device::place_message(*peer, steps.slot_bytes(sizeof own));
      device::Operands operands;
      operands.own = reinterpret_cast<const uint8_t*>(&own);
      operands.own_position = position;
      operands.recv = peers.data();
      operands.recv_count = 2;
      operands.output = reinterpret_cast<uint8_t*>(&sum);
      operands.elements = 1;
      ASSERT_EQ(steps.move(operands), TUTTI_OK);
      EXPECT_EQ(sum, position == 2 ? 1 : 0) << position;
    }
  }
}

// The receiver may read memory that stays as it is until it has done so, and no other.
TEST(Device, OnlyStableValuesAreOfferedInPlace) {
  Steps steps(Wire::kSimple);
  steps.work().direct_minimum = 1;
  const float value = 3;
  steps.send(value, 0, 2, true);
  EXPECT_EQ(device::Simple::header(steps.to(0, 2)).address, reinterpret_cast<uint64_t>(&value));
  steps.send(value, 0, 2, false);
  EXPECT_EQ(device::Simple::header(steps.to(0, 2)).address, 0u);
  EXPECT_EQ(*reinterpret_cast<const float*>(device::Simple::payload(steps.to(0, 2))), value);
}

TEST(Device, DifferentCountsAreNoticed) {
  for (const Wire wire : {Wire::kSimple, Wire::kSimpleSplit, Wire::kLL}) {
    const Case test{2, &check::two_shot_all_reduce, wire, 64, false, 0};
    std::vector<Rank> ranks = make_ranks(test);
    std::vector<float> data(256), out(256);
    std::thread other([&] {
      Case shorter = test;
      shorter.count = 60;
      std::vector<float> other_data(256), other_out(256);
      EXPECT_EQ(ranks[1].all_reduce(shorter, other_data.data(), other_out.data(), 1).code, TUTTI_MISMATCH);
    });
    EXPECT_EQ(ranks[0].all_reduce(test, data.data(), out.data(), 1).code, TUTTI_MISMATCH);
    other.join();
  }
}

// A short and a long message may begin at different ends of the ring; the receiver must find the sender's message.
TEST(Device, DifferentCountsAreNoticedAtEveryPlace) {
  for (uint32_t calls_before = 0; calls_before < 2 * layout_of(Wire::kSimpleSplit).slot_count; ++calls_before) {
    SCOPED_TRACE(calls_before);
    const Case small{2, &check::two_shot_all_reduce, Wire::kSimpleSplit, 2, false, 0};
    Case large = small;
    large.count = 250;  // messages of 3 slots in place of 1
    std::vector<Rank> ranks = make_ranks(small);
    const auto run = [&](uint32_t rank, const Case& last) {
      std::vector<float> data(large.count), out(large.count);
      for (uint32_t call = 1; call <= calls_before; ++call) {
        EXPECT_EQ(ranks[rank].all_reduce(small, data.data(), out.data(), call).code, TUTTI_OK);
      }
      EXPECT_EQ(ranks[rank].all_reduce(last, data.data(), out.data(), calls_before + 1).code, TUTTI_MISMATCH);
    };
    std::thread other([&] { run(1, small); });
    run(0, large);
    other.join();
    EXPECT_EQ(ranks[0].fault.theirs.words[1], small.count);
    EXPECT_EQ(ranks[1].fault.theirs.words[1], large.count);
  }
}

TEST(Device, AbortEndsAWait) {
  const Case test{2, &check::ring_all_reduce, Wire::kSimple, 1000, false, 0};
  std::vector<Rank> ranks = make_ranks(test);
  std::vector<float> data(1000), out(1000);
  std::thread waiting([&] { EXPECT_EQ(ranks[0].all_reduce(test, data.data(), out.data(), 1).code, TUTTI_ABORTED); });
  std::atomic_ref<uint32_t>(ranks[0].abort).store(1);
  waiting.join();
}

/// A work that advances once per sleep of its driver, some times before it is done.
struct Slow {
  int advances = 0;
  int looks = 0;
  static int32_t run(void* self, tutti_work* work) {
    auto& slow = *static_cast<Slow*>(self);
    if (work->spins != 0 || ++slow.looks % 2 == 0) return TUTTI_AGAIN;  // only before every second sleep
    ++work->cursor.step;
    return --slow.advances > 0 ? TUTTI_AGAIN : TUTTI_OK;
  }
};

// The time-out is for calls in which nothing goes on. A call may take longer.
TEST(Device, ACallThatAdvancesMayTakeLongerThanTheTimeOut) {
  const Case test{2, &check::ring_all_reduce, Wire::kSimple, 10, false, 0};
  std::vector<Rank> ranks = make_ranks(test);
  constexpr std::chrono::milliseconds kTimeOut{1000};  // ten times the longest sleep of the driver
  constexpr int kAdvances = 16;
  tutti_work work{};
  Slow slow{kAdvances};
  static constexpr tutti_protocol_ops kSlow{
      sizeof(tutti_protocol_ops), 0, nullptr, nullptr, Slow::run, nullptr, nullptr};
  Job job{&work, &kSlow, &slow, nullptr, false, {}};
  Driver driver({10, 1, {}, {}, kTimeOut, &ranks[0].shm->bell()});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(driver.run({&job, 1}).code, TUTTI_OK);
  EXPECT_GT(std::chrono::steady_clock::now() - start, kTimeOut) << "else this shows nothing";
  EXPECT_EQ(slow.advances, 0);
}

/// A work that waits until its thread runs on a processor, or until the time is up.
struct Placed {
  int processor;
  std::chrono::steady_clock::time_point end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  static int32_t run(void* self, tutti_work* /*work*/) {
    const auto& placed = *static_cast<Placed*>(self);
    if (sched_getcpu() == placed.processor) return TUTTI_OK;
    return std::chrono::steady_clock::now() < placed.end ? TUTTI_AGAIN : TUTTI_INTERNAL;
  }
};

// Ranks that share processors spread over them, although the scheduler leaves threads that yield where they are.
TEST(Device, AWaitMovesToTheProcessorOfItsSeat) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(static_cast<size_t>(i), &allowed)) processors.push_back(i);
  }
  if (processors.size() < 2) GTEST_SKIP() << "needs two processors";
  const Case test{2, &check::ring_all_reduce, Wire::kSimple, 10, false, 0};
  std::vector<Rank> ranks = make_ranks(test);
  static constexpr tutti_protocol_ops kPlaced{
      sizeof(tutti_protocol_ops), 0, nullptr, nullptr, Placed::run, nullptr, nullptr};
  for (uint32_t seat = 0; seat < 8; ++seat) {  // a scheduler that moves the thread by itself does not follow the seats
    const int processor = processors[seat % 2];
    Placed placed{processor};
    tutti_work work{};
    Job job{&work, &kPlaced, &placed, nullptr, false, {}};
    const auto own = seat % 2 + static_cast<uint32_t>(processors.size()) * (seat / 2);
    constexpr uint32_t kYields = UINT32_MAX;  // a busy processor may give the thread away before it runs there
    Driver driver({10, kYields, {}, {}, std::chrono::seconds(20), &ranks[0].shm->bell(), own});
    EXPECT_EQ(driver.run({&job, 1}).code, TUTTI_OK) << "seat " << own;
    cpu_set_t after;
    ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&allowed, &after)) << "a move leaves the thread free";
  }
}

/// Rank 0 sends its first chunk, and rank 1 folds it.
void send_to_rank_one(PlanBuilder& plan, uint32_t rank, uint32_t /*ranks*/) {
  if (rank == 0) plan.step().own(Buffer::kInput, 0).send(1);
  if (rank == 1) plan.step().recv(0).own(Buffer::kInput, 0).final().to_output(0);
}

// The receiver reads the input of the sender, so the sender's call may not end before.
TEST(Device, TheSenderWaitsForTheReaderOfItsMemory) {
  const Case test{2, &send_to_rank_one, Wire::kSimple, 32, false, 64};
  std::vector<Rank> ranks = make_ranks(test);
  const std::vector<float> sent(32, 1), own(32, 2);
  std::vector<float> unused(32), sum(32);
  tutti_work sender = ranks[0].work_of(test, sent.data(), unused.data(), 1);
  tutti_work receiver = ranks[1].work_of(test, own.data(), sum.data(), 1);
  EXPECT_EQ(run_wire<device::Simple>(nullptr, &sender), TUTTI_AGAIN);
  EXPECT_EQ(run_wire<device::Simple>(nullptr, &receiver), TUTTI_OK);
  EXPECT_EQ(run_wire<device::Simple>(nullptr, &sender), TUTTI_OK);
  EXPECT_EQ(sum[15], 3) << "the last element of the chunk";
}

// A network sends slots while they are in the cache: run() hands 64 KiB to its caller at a time.
TEST(Device, SlotsOfANetworkAreSentBeforeFurtherSlotsAreFilled) {
  constexpr uint64_t kCount = 10 * (32 << 10) / sizeof(float);  // rank 0 sends half of it, in five messages
  const Case test{2, &send_to_rank_one, Wire::kSimpleLong, kCount, false, 0};
  const std::vector<float> sent(kCount, 1);
  std::vector<float> unused(kCount);
  for (const bool is_network : {true, false}) {
    SCOPED_TRACE(is_network);
    std::vector<Rank> ranks = make_ranks(test);
    tutti_connection& to = *ranks[0].first(true);
    if (is_network) to.flags |= TUTTI_CONNECTION_NETWORK;
    tutti_work work = ranks[0].work_of(test, sent.data(), unused.data(), 1);
    for (uint64_t filled = 2; is_network && filled <= 4; filled += 2) {
      EXPECT_EQ(run_wire<device::Simple>(nullptr, &work), TUTTI_AGAIN);
      EXPECT_EQ(to.step, filled);
    }
    EXPECT_EQ(run_wire<device::Simple>(nullptr, &work), TUTTI_OK);
    EXPECT_EQ(to.step, 5u);
  }
}

TEST(Device, TimeOutNamesThePeer) {
  const Case test{3, &check::ring_all_reduce, Wire::kLL, 10, false, 0};
  std::vector<Rank> ranks = make_ranks(test);
  std::vector<float> data(10), out(10);
  tutti_work work{};
  Driver driver({10, 1, {}, {}, std::chrono::milliseconds(50), &ranks[1].shm->bell()});
  work.program = &ranks[1].view;
  work.connections = ranks[1].connections.data();
  work.data_type = TUTTI_FLOAT32;
  work.element_bytes = 4;
  work.input = data.data();
  work.output = out.data();
  work.count = work.end = 10;
  work.slice_elements = work.chunk_elements = 16;
  work.abort = &ranks[1].abort;
  static constexpr tutti_protocol_ops kLL{sizeof(tutti_protocol_ops), 0,       nullptr, nullptr,
                                          run_wire<device::LL>,       nullptr, nullptr};
  Job job{&work, &kLL, nullptr, nullptr, false, {}};
  const Driver::Outcome outcome = driver.run({&job, 1});
  EXPECT_EQ(outcome.code, TUTTI_TIMEOUT);
  EXPECT_EQ(outcome.job->work->fault.peer, 0u);
}

}  // namespace
}  // namespace tutti::test
