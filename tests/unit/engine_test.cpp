// SPDX-License-Identifier: Apache-2.0
// When the threads of the progress engine sleep.
#include "progress/engine.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "unit/required.h"

namespace tutti::progress {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// A network of which only the event descriptor counts.
class EventSource {
 public:
  EventSource() : fd_(eventfd(0, EFD_NONBLOCK)) {
    ops_.event_fd = [](void* context, int32_t* fd) -> int32_t {
      *fd = static_cast<EventSource*>(context)->fd_;
      return TUTTI_OK;
    };
    ops_.arm = [](void* context) -> int32_t {
      auto& self = *static_cast<EventSource*>(context);
      ++self.arms_;
      if (self.on_arm_) self.on_arm_();
      uint64_t events = 0;
      const bool had_events = read(self.fd_, &events, sizeof events) > 0;
      if (had_events) ++self.wakes_;
      return had_events ? TUTTI_AGAIN : TUTTI_OK;
    };
  }
  ~EventSource() { close(fd_); }
  /// Called before the source is added.
  void set_on_arm(std::function<void()> on_arm) { on_arm_ = std::move(on_arm); }
  Engine::Source source() {
    return {&ops_, this, true, nullptr, "here", [](std::string_view, int32_t) { return Status(); }};
  }
  void happen() {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  int arms() const { return arms_; }
  int wakes() const { return wakes_; }

 private:
  int fd_;
  tutti_network_ops ops_{};
  std::function<void()> on_arm_;
  std::atomic<int> arms_{0}, wakes_{0};
};

/// A task on the engine's own thread.
class Quiet : public Task {
 public:
  Result<bool> progress() override { return false; }
  bool idle() const override { return true; }
};

/// A task that brings data of peer 1 only.
class Particular : public Task {
 public:
  Result<bool> progress() override {
    if (std::this_thread::get_id() == maker_) ++rounds_;
    return false;
  }
  bool idle() const override { return true; }
  bool serves(uint32_t peer) const override { return peer == 1; }
  int rounds() const { return rounds_; }  ///< in the thread that made the task

 private:
  const std::thread::id maker_ = std::this_thread::get_id();
  std::atomic<int> rounds_{0};
};

/// A task on a polling thread, whose data moves until stop().
class Busy : public Task {
 public:
  Result<bool> progress() override {
    ++rounds_;
    return !stopped_;
  }
  bool idle() const override { return true; }
  bool polls() const override { return true; }
  void stop() { stopped_ = true; }
  int rounds() const { return rounds_; }

 private:
  std::atomic<bool> stopped_{false};
  std::atomic<int> rounds_{0};
};

/// A task on the engine's own thread that reads the rounds of a busy task in each of its own rounds.
class Observer : public Task {
 public:
  explicit Observer(const Busy& busy) : busy_(busy) {}
  Result<bool> progress() override {
    readings_ = {readings_[1], readings_[2], busy_.rounds()};
    ++calls_;
    return false;
  }
  bool idle() const override { return true; }
  int calls() const { return calls_; }
  /// Whether the busy task moved data between the previous sleep and this sleep. In the engine's thread, at arm().
  /// The newest reading is from this sleep, the second from the round before, and the third from the previous sleep.
  /// A round can be counted here before the polling thread counts its move.
  bool moved_before_sleep() const { return calls_ >= 3 && readings_[1] - readings_[0] > 1; }

 private:
  const Busy& busy_;
  std::array<int, 3> readings_{};
  std::atomic<int> calls_{0};
};

/// A task that holds data back, which a peer may need.
class Holding : public Task {
 public:
  Result<bool> progress() override {
    if (std::this_thread::get_id() == maker_) ++rounds_;
    return false;
  }
  bool idle() const override { return false; }
  bool urgent() const override { return urgent_; }
  Result<bool> settle() override {
    ++settles_;
    return false;
  }
  void set_urgent() { urgent_ = true; }
  int rounds() const { return rounds_; }  ///< in the thread that made the task
  int settles() const { return settles_; }

 private:
  const std::thread::id maker_ = std::this_thread::get_id();
  std::atomic<bool> urgent_{false};
  std::atomic<int> rounds_{0}, settles_{0};
};

template <class Condition>
bool eventually(Condition&& condition) {
  for (const auto end = Clock::now() + 10s; !condition() && Clock::now() < end;) std::this_thread::yield();
  return condition();
}

std::unique_ptr<Engine> engine_on(EventSource& source) {
  auto engine = test::required(Engine::create({[](const Status&) {}, 1}));
  engine->add_source(source.source());
  return engine;
}

TEST(Engine, IsWokenByTheNetwork) {
  EventSource source;
  const auto engine = engine_on(source);
  engine->add(std::make_shared<Quiet>());
  ASSERT_TRUE(eventually([&] { return source.arms() > 0; }));
  for (int i = 1; i <= 20; ++i) {
    source.happen();
    ASSERT_TRUE(eventually([&] { return source.wakes() == i; }));
  }
  engine->stop();
}

TEST(Engine, LooksForTheDataOfAPeer) {
  const auto engine = test::required(Engine::create({[](const Status&) {}, 1}));
  const auto particular = std::make_shared<Particular>();
  engine->add(particular);
  // An engine's thread that is in a round of its own keeps a caller from assisting.
  for (int i = 0; i < 100; ++i) engine->assist(0);
  EXPECT_EQ(particular->rounds(), 0);
  for (const std::optional<uint32_t> peer : {std::optional<uint32_t>(1), std::optional<uint32_t>()}) {
    const int before = particular->rounds();
    EXPECT_TRUE(eventually([&] {
      if (particular->rounds() == before) engine->assist(peer);
      return particular->rounds() > before;
    }));
    EXPECT_EQ(particular->rounds(), before + 1);
  }
  engine->stop();
}

/// Polling threads look at their connections themselves. Events of these connections wake no thread, and are not lost.
TEST(Engine, LeavesTheNetworkToBusyPollingThreads) {
  const auto busy = std::make_shared<Busy>();
  const auto observer = std::make_shared<Observer>(*busy);
  EventSource source;
  std::atomic<int> wrong_arms{0};
  source.set_on_arm([&] { wrong_arms += observer->moved_before_sleep(); });
  const auto engine = engine_on(source);
  engine->add(busy);
  ASSERT_TRUE(eventually([&] { return busy->rounds() > 100; }));
  engine->add(observer);
  constexpr int kEvents = 300;
  for (int i = 0; i < kEvents; ++i) {
    source.happen();
    const int rounds = busy->rounds();
    const int calls = observer->calls();
    ASSERT_TRUE(eventually([&] { return busy->rounds() > rounds + 50 && observer->calls() > calls + 2; }));
  }
  EXPECT_EQ(wrong_arms, 0);
  busy->stop();
  const int before = source.wakes();
  source.happen();
  EXPECT_TRUE(eventually([&] { return source.wakes() > before; }));
  engine->stop();
}

TEST(Engine, SettlesItsTasksBeforeItSleeps) {
  EventSource source;
  const auto engine = engine_on(source);
  const auto holding = std::make_shared<Holding>();
  engine->add(holding);
  EXPECT_TRUE(eventually([&] { return holding->settles() > 0; }));
  engine->stop();
}

/// Data that can wait stays where it is.
TEST(Engine, ADriveEndsByMovingUrgentData) {
  EventSource source;
  const auto engine = engine_on(source);
  const auto holding = std::make_shared<Holding>();
  engine->add(holding);
  for (int i = 0; i < 10; ++i) const Engine::Drive drive(engine.get());
  EXPECT_EQ(holding->rounds(), 0);
  holding->set_urgent();
  const auto ends_a_drive = [&] {
    { const Engine::Drive drive(engine.get()); }
    return holding->rounds() > 0;
  };
  EXPECT_TRUE(eventually(ends_a_drive));
  engine->stop();
}

}  // namespace
}  // namespace tutti::progress
