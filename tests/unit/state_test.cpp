// SPDX-License-Identifier: Apache-2.0
// The state of a communicator, and its setup, on a fake back end. Ranks are threads, which meet over the loopback.
#include "communicator/state.h"

#include <gmock/gmock.h>

#include <array>
#include <deque>

#include "communicator/group.h"
#include "communicator/survey.h"
#include "log/log.h"
#include "unit/bootstrap_group.h"
#include "unit/fake_backend.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using backend::Call;
using backend::Turn;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using State = Communicator::State;
using Settings = std::vector<std::pair<std::string, std::string>>;

std::array<uint8_t, 64> memory;

Call all_reduce(size_t count) {
  return {Collective::kAllReduce, memory.data(), memory.data(), count, DataType::kUint8};
}

Call send_to(int peer, size_t count = 4) {
  return {Collective::kSendRecv, memory.data(), nullptr, count, DataType::kUint8, ReduceOp::kSum, peer, false};
}

Call receive_from(int peer, size_t count = 4) {
  return {Collective::kSendRecv, nullptr, memory.data() + 32, count, DataType::kUint8, ReduceOp::kSum, peer, true};
}

Result<std::shared_ptr<State>> join(const UniqueId& id, int rank, int ranks, const backend::Factory& make,
                                    const Settings& settings = {}) {
  config::LoadOptions options;
  options.site_file = "";
  options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}};
  options.settings.insert(options.settings.end(), settings.begin(), settings.end());
  TUTTI_ASSIGN(config::Config config, config::Config::load(options));
  return State::create(id, rank, ranks, std::move(config), make);
}

/// A communicator of one rank.
std::shared_ptr<State> alone(FakeDevice& device, int number = -1) {
  return required(join(bootstrap::make_id(), 0, 1, device.factory(number)));
}

/// Runs body(state, device) in one thread for each rank. A rank leaves at the end of its body.
using Body = std::function<void(const std::shared_ptr<State>& state, FakeDevice& device)>;
void on_ranks(int ranks, const Body& body, const Settings& settings = {}) {
  const UniqueId id = bootstrap::make_id();
  std::deque<FakeDevice> devices(static_cast<size_t>(ranks));
  bootstrap::in_ranks(ranks, [&](int rank) {
    FakeDevice& device = devices[static_cast<size_t>(rank)];
    const auto state = join(id, rank, ranks, device.factory(), settings);
    ASSERT_TRUE(state.ok()) << state.status().to_string();
    body(*state, device);
  });
}

/// The lines of one level in this process.
class Lines {
 public:
  explicit Lines(log::Level level) {
    log::set_filter([this, level](log::Level of, int, std::string_view text) {
      const std::lock_guard lock(mutex_);
      if (of == level) lines_.emplace_back(text);
      changed_.notify_all();
      return false;
    });
  }
  ~Lines() { log::set_filter(nullptr); }
  std::string first() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [&] { return !lines_.empty(); });
    return lines_.empty() ? "" : lines_.front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

// Setup.

TEST(Setup, MakesOneBackEndAndServesIt) {
  FakeDevice device;
  {
    const auto state = alone(device);
    EXPECT_THAT(device.did(), ElementsAre("make", "serve"));
    EXPECT_FALSE(device.had_gpu_options);
    EXPECT_FALSE(state->takes_streams());
  }
  EXPECT_THAT(device.did(), ElementsAre("make", "serve", "flush", "end of the back end"));
}

TEST(Setup, TellsTheSelectorTheRoomForStrands) {
  FakeDevice device;
  device.strand_ctas = {7};
  const auto state = alone(device);
  const auto& protocols = device.selector->choices().protocols;
  ASSERT_GE(protocols.size(), 2u);
  EXPECT_EQ(protocols[0].strand_ctas, 7u);
  EXPECT_EQ(protocols[1].strand_ctas, TUTTI_CUDA_MAX_CTAS);
}

TEST(Setup, TellsAllRanksWhyABackEndCannotBeMade) {
  const UniqueId id = bootstrap::make_id();
  std::deque<FakeDevice> devices(3);
  devices[1].set_result(Status(Code::kUnsupported, "no device here"));
  bootstrap::in_ranks(3, [&](int rank) {
    const auto state = join(id, rank, 3, devices[static_cast<size_t>(rank)].factory());
    EXPECT_EQ(state.status().code(), Code::kUnsupported) << rank;
    EXPECT_EQ(state.status().text(), rank == 1 ? "no device here" : "rank 1: no device here") << rank;
  });
  EXPECT_EQ(devices[1].count("end of the back end"), 0u);
  EXPECT_EQ(devices[0].count("serve"), 0u);
}

TEST(Setup, SplitMakesABackEndForEachCommunicator) {
  on_ranks(3, [](const auto& state, FakeDevice& device) {
    const auto part =
        required(state->split(state->rank() == 2 ? -1 : 0, -state->rank(), required(state->config_for(std::nullopt))));
    EXPECT_EQ(part != nullptr, state->rank() != 2);
    EXPECT_EQ(device.count("make"), part != nullptr ? 2u : 1u);
    if (part == nullptr) return;
    EXPECT_EQ(part->rank(), 1 - state->rank());
    EXPECT_TRUE(part->run(all_reduce(8)).ok());
    EXPECT_EQ(device.count("run all_reduce 8"), 1u);
  });
}

// Calls.

TEST(Calls, ReachTheBackEndInOrderAndAreNumbered) {
  FakeDevice device;
  const auto state = alone(device);
  EXPECT_TRUE(state->run(all_reduce(8)).ok());
  EXPECT_EQ(device.ledger->attendance.collectives(), 1u);
  EXPECT_EQ(backend::describe(device.ledger->history.progress()),
            "has enqueued call 1, " + backend::describe(all_reduce(8)));
  EXPECT_TRUE(state->run({Collective::kBroadcast, memory.data(), memory.data(), 3}).ok());
  EXPECT_TRUE(state->barrier(nullptr).ok());
  EXPECT_THAT(device.did(), ElementsAre("make", "serve", "run all_reduce 8", "run broadcast 3", "barrier"));
  EXPECT_EQ(device.ledger->attendance.collectives(), 3u);
  EXPECT_EQ(device.ledger->history.calls().latest(), 3u);
}

TEST(Calls, OfNoElementsAreCountedWithoutTheBackEnd) {
  FakeDevice device;
  const auto state = alone(device);
  EXPECT_TRUE(state->run(all_reduce(0)).ok());
  EXPECT_TRUE(state->run(all_reduce(8)).ok());
  EXPECT_THAT(device.did(), ElementsAre("make", "serve", "run all_reduce 8"));
  EXPECT_EQ(device.ledger->attendance.collectives(), 2u);
  EXPECT_EQ(device.ledger->history.calls().latest(), 2u);
}

TEST(Calls, WithWrongArgumentsReachNoBackEndAndBreakNothing) {
  FakeDevice device;
  const auto state = alone(device);
  Call wrong = all_reduce(8);
  wrong.input = nullptr;
  EXPECT_EQ(state->run(wrong).code(), Code::kInvalidArgument);
  EXPECT_EQ(state->run_messages(std::array{send_to(1)}).code(), Code::kInvalidArgument);
  EXPECT_EQ(device.ledger->attendance.collectives(), 0u);
  EXPECT_FALSE(state->has_failed());
  EXPECT_THAT(device.did(), ElementsAre("make", "serve"));
}

TEST(Calls, ThatAreRefusedAreTakenBack) {
  FakeDevice device;
  const auto state = alone(device);
  EXPECT_TRUE(state->run(all_reduce(8)).ok());
  const auto digest = device.ledger->history.calls().at(1)->digest;
  device.set_result(Status(Code::kUnsupported, "too many elements"));
  EXPECT_EQ(state->run(all_reduce(9)).to_string(), "unsupported: too many elements");
  EXPECT_EQ(device.ledger->attendance.collectives(), 1u);
  EXPECT_EQ(device.ledger->history.calls().latest(), 1u);
  EXPECT_EQ(device.ledger->history.calls().at(1)->digest, digest);
  EXPECT_FALSE(state->has_failed());
  device.set_result({});
  EXPECT_TRUE(state->run(all_reduce(10)).ok());
  EXPECT_EQ(device.ledger->attendance.collectives(), 2u);
}

TEST(Calls, MessagesAreNumberedForEachPeerAndDirection) {
  on_ranks(2, [](const auto& state, FakeDevice& device) {
    const int peer = 1 - state->rank();
    const std::array calls{send_to(peer),         receive_from(peer),     send_to(peer, 0),
                           receive_from(peer, 0), send_to(state->rank()), receive_from(state->rank())};
    EXPECT_TRUE(state->run_messages(calls).ok());
    EXPECT_EQ(device.count("messages 6"), 1u);
    EXPECT_EQ(device.ledger->attendance.count_of(Turn::Kind::kSend, static_cast<uint32_t>(peer)), 2u);
    EXPECT_EQ(device.ledger->attendance.count_of(Turn::Kind::kReceive, static_cast<uint32_t>(peer)), 2u);
    EXPECT_EQ(device.ledger->attendance.count_of(Turn::Kind::kSend, static_cast<uint32_t>(state->rank())), 0u);
    EXPECT_EQ(device.ledger->attendance.collectives(), 0u);
    EXPECT_TRUE(state->exchange({}).ok());  // both ranks are there until both have checked
  });
}

// Failures.

TEST(Failures, OfOneRankEndTheCallsOfAllRanks) {
  FakeDevice recorder;
  on_ranks(3, [&recorder](const auto& state, FakeDevice& device) {
    const std::string text = "device error: the device gave up";
    if (state->rank() == 1) {
      device.set_result(Status(Code::kDevice, "the device gave up"));
      EXPECT_TRUE(recorder.wait_for("held", 2));
    } else {
      device.hold(recorder);
    }
    EXPECT_EQ(state->run(all_reduce(8)).to_string(), text) << state->rank();
    EXPECT_TRUE(device.wait_for("stop"));
    state->abort("too late");
    EXPECT_EQ(state->failure().to_string(), text) << "the first failure holds";
    EXPECT_EQ(state->run(all_reduce(8)).to_string(), text);
    EXPECT_EQ(state->run_messages(std::array{send_to(0)}).to_string(), text);
    EXPECT_EQ(state->barrier(nullptr).to_string(), text);
    EXPECT_EQ(state->check_device().to_string(), text);
    EXPECT_EQ(state->register_buffer(memory.data(), 8).status().to_string(), text);
    EXPECT_EQ(state->gather(std::array<Stream, 1>{}).to_string(), text);
    EXPECT_EQ(device.count("run all_reduce 8"), 1u) << "later calls do not reach the device";
    EXPECT_EQ(device.count("messages 1") + device.count("barrier") + device.count("gather 1"), 0u);
    EXPECT_EQ(device.ledger->attendance.collectives(), 1u);
  });
}

TEST(Failures, AnAbortEndsTheCallsOfAllRanksWithItsReason) {
  FakeDevice recorder;
  on_ranks(2, [&recorder](const auto& state, FakeDevice& device) {
    if (state->rank() == 1) {
      EXPECT_TRUE(recorder.wait_for("held"));
      state->abort("a | test");
      EXPECT_EQ(state->run(all_reduce(8)).to_string(), "aborted: a | test");
      EXPECT_EQ(device.count("run all_reduce 8"), 0u);
      return;
    }
    device.hold(recorder);
    EXPECT_EQ(state->run(all_reduce(8)).to_string(), "aborted: a | test");
  });
}

TEST(Failures, OfTheDeviceAreReportedByTheNextCall) {
  on_ranks(2, [](const auto& state, FakeDevice& device) {
    const std::string text = "timeout: a kernel made no progress";
    if (state->rank() == 0) {
      EXPECT_TRUE(state->check_device().ok());
      device.set_fault(Status(Code::kTimeout, "a kernel made no progress"));
      EXPECT_EQ(state->run(all_reduce(8)).to_string(), text);
      EXPECT_EQ(device.count("run all_reduce 8"), 0u);
    }
    EXPECT_TRUE(device.wait_for("stop"));
    EXPECT_EQ(state->check_device().to_string(), text);
  });
}

TEST(Failures, DataThatDoesNotLeaveIsTold) {
  Lines errors(log::Level::kError);
  on_ranks(2, [](const auto& state, FakeDevice& device) {
    EXPECT_TRUE(state->run(all_reduce(8)).ok());
    EXPECT_TRUE(state->exchange({}).ok());
    if (state->rank() == 1) return device.set_stuck();
    EXPECT_TRUE(device.wait_for("stop"));
    EXPECT_EQ(state->failure().code(), Code::kTimeout);
    EXPECT_THAT(state->failure().text(), AllOf(HasSubstr("rank 1 left, but its data did not go out within"),
                                               HasSubstr("rank 1 has enqueued call 1")));
  });
  EXPECT_THAT(errors.first(), HasSubstr("rank 1 left, but its data did not go out"));
}

// Ranks that leave.

TEST(Departure, FailsACallThatHasReturned) {
  on_ranks(2, [](const auto& state, FakeDevice& device) {
    if (state->rank() == 1) return;
    EXPECT_TRUE(state->run(all_reduce(8)).ok() || state->has_failed());
    EXPECT_TRUE(device.wait_for("stop"));
    const Status failure = state->check_device();
    EXPECT_EQ(failure.code(), Code::kRemote);
    EXPECT_THAT(failure.text(), HasSubstr("rank 1 left before call 1"));
    EXPECT_EQ(state->run(all_reduce(8)).to_string(), failure.to_string());
  });
}

TEST(Departure, FailsTheFirstCallThatTheRankDoesNotMake) {
  on_ranks(2, [](const auto& state, FakeDevice& device) {
    EXPECT_TRUE(state->run(all_reduce(8)).ok());
    EXPECT_TRUE(state->exchange({}).ok());
    if (state->rank() == 1) return;
    EXPECT_TRUE(device.wait_for("departure"));
    EXPECT_FALSE(state->has_failed()) << "the rank has made its part of call 1";
    const Status failure = state->run(all_reduce(9));
    EXPECT_EQ(failure.code(), Code::kRemote);
    EXPECT_THAT(failure.text(), HasSubstr("rank 1 left before call 2"));
    EXPECT_EQ(device.count("run all_reduce 9"), 0u);
    EXPECT_TRUE(device.wait_for("stop"));
  });
}

TEST(Departure, ComparesTheCallsOfTheRankThatLeaves) {
  on_ranks(2, [](const auto& state, FakeDevice& device) {
    EXPECT_TRUE(state->run(all_reduce(8)).ok());
    EXPECT_TRUE(state->exchange({}).ok());
    if (state->rank() == 1) return;
    // An earlier departure, whose calls differ. If the next departure compared it again, the work of a job would grow
    // with the cube of its ranks.
    const communicator::Series other{1, 1, {{0, 9, 1}}};
    device.ledger->attendance.add({1, 1, 0, 0, "has done call 1", communicator::encode(other)});
    EXPECT_TRUE(device.wait_for("departure"));
    EXPECT_FALSE(state->has_failed()) << state->failure().to_string();
    EXPECT_EQ(state->check_device().to_string(), Status().to_string());
  });
}

// Registration.

TEST(Registration, ReachesTheBackEndOnceTheClaimsFit) {
  on_ranks(2, [](const auto& state, FakeDevice& device) {
    const auto differs = state->register_buffer(memory.data(), state->rank() == 0 ? 8 : 16);
    EXPECT_EQ(differs.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(device.count("register 8") + device.count("register 16"), 0u);
    EXPECT_FALSE(state->has_failed());
    const auto number = required(state->register_buffer(memory.data(), 32));
    EXPECT_EQ(number, 7u);
    EXPECT_EQ(device.count("register 32"), 1u);
    state->end_registration(*number);
    EXPECT_EQ(device.count("end 7"), 1u);
    EXPECT_TRUE(state->exchange({}).ok());
  });
}

// Waits.

TEST(Waits, OfADeviceAreReportedWithTheAwaitedRank) {
  Lines warnings(log::Level::kWarn);
  on_ranks(2,
           [&](const auto& state, FakeDevice& device) {
             if (state->rank() == 0) {
               EXPECT_TRUE(state->run(all_reduce(8)).ok());
               device.set_wait(std::chrono::seconds(30), 1);
               EXPECT_THAT(warnings.first(), AllOf(HasSubstr("no progress for 3"), HasSubstr("rank 0 waits in"),
                                                   HasSubstr("for rank 1"), HasSubstr("rank 1 has made no call")));
             }
             EXPECT_TRUE(state->exchange({}).ok());
             EXPECT_TRUE(state->rank() == 0 || state->run(all_reduce(8)).ok());
           },
           {{"timeouts.warn", "500ms"}});
}

// Groups.

void defer(const std::shared_ptr<State>& state, Call call, Stream stream) {
  call.stream = stream;
  EXPECT_TRUE(communicator::defer(state, call));
}

TEST(Groups, GatherAllStreamsBeforeTheFirstCall) {
  FakeDevice device;  // of both communicators
  const auto one = alone(device, 5);
  const auto other = alone(device, 5);
  const size_t before = device.did().size();
  EXPECT_TRUE(one->takes_streams());
  ASSERT_TRUE(group_start().ok());
  for (const auto& [state, count] : {std::pair(one, size_t{8}), std::pair(other, size_t{9})}) {
    defer(state, all_reduce(count), &memory[0]);
    defer(state, send_to(0), &memory[1]);
    defer(state, receive_from(0), &memory[1]);
  }
  EXPECT_EQ(device.did().size(), before) << "calls wait for the end of the group";
  EXPECT_TRUE(group_end().ok());
  std::vector<std::string> did = device.did();
  did.erase(did.begin(), did.begin() + static_cast<ptrdiff_t>(before));
  const bool in_order = one->secret() < other->secret();
  EXPECT_THAT(did,
              ElementsAre("gather 2", "gather 2", in_order ? "run all_reduce 8" : "run all_reduce 9", "messages 2",
                          "release 2", in_order ? "run all_reduce 9" : "run all_reduce 8", "messages 2", "release 2"));
}

TEST(Groups, EndWithTheFirstFailureAndRunAllCommunicators) {
  FakeDevice good;
  FakeDevice bad;
  const auto one = alone(good, 5);
  const auto other = alone(bad, 6);
  bad.set_result(Status(Code::kUnsupported, "too many elements"));
  ASSERT_TRUE(group_start().ok());
  defer(other, all_reduce(8), nullptr);
  defer(one, all_reduce(8), nullptr);
  EXPECT_EQ(group_end().to_string(), "unsupported: too many elements");
  EXPECT_EQ(good.count("run all_reduce 8"), 1u);
  EXPECT_EQ(good.count("release 1"), 0u) << "one stream needs no order";
}

}  // namespace
}  // namespace tutti::test
