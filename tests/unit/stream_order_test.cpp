// SPDX-License-Identifier: Apache-2.0
// The order of operations across streams, on a model machine that records for each stream its dependencies.
#include "backend/cuda/stream_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace tutti::backend {
namespace {

using Work = std::set<int>;

/// Streams and events as in CUDA: an event keeps the work that its stream held when it was recorded.
class Machine {
 public:
  /// Enqueues something, and returns its number.
  int enqueue(int stream) {
    streams_[stream].work.insert(++latest_);
    return latest_;
  }
  /// The work that has ended before the next work of the stream begins.
  Work before(int stream) const {
    Work work = through_;
    const Work& held = streams_.at(stream).work;
    work.insert(held.begin(), held.end());
    return work;
  }
  void begin_capture(int stream, uint64_t id) { streams_[stream] = {id, {}}; }
  void end_captures() {
    for (auto& [number, stream] : streams_) {
      if (stream.capture) stream = {};
    }
  }
  void destroy(int stream) { streams_.erase(stream); }
  bool through(int work) const { return through_.contains(work); }
  uint64_t thread = 1;  ///< the thread that makes the calls
  size_t events() const { return events_; }
  size_t stops() const { return stops_; }

  Result<std::optional<uint64_t>> capture(int stream) const {
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return Status(Code::kDevice, "no such stream");
    return found->second.capture;
  }
  Status record(size_t mark, int stream) {
    ++events_;
    if (!streams_.contains(stream)) return {Code::kDevice, "no such stream"};
    marks_[mark] = streams_[stream];
    return {};
  }
  Status wait(int stream, size_t mark) {
    ++events_;
    Stream& waiting = streams_[stream];
    // CUDA would make the stream part of the capture, or end the capture.
    if (waiting.capture != marks_[mark].capture) return {Code::kDevice, "a capture is left or entered"};
    waiting.work.insert(marks_[mark].work.begin(), marks_[mark].work.end());
    return {};
  }
  Status finish(size_t mark) {
    if (marks_[mark].capture) return {Code::kDevice, "an event of a capture"};
    through_.insert(marks_[mark].work.begin(), marks_[mark].work.end());
    return {};
  }
  Status finish_all() {
    ++stops_;
    for (int work = 1; work <= latest_; ++work) through_.insert(work);
    return {};
  }

 private:
  struct Stream {
    std::optional<uint64_t> capture;
    Work work;
  };
  std::map<int, Stream> streams_ = {{0, {}}, {1, {}}, {2, {}}, {3, {}}};
  std::array<Stream, 4> marks_;
  Work through_;
  int latest_ = 0;
  size_t events_ = 0;
  size_t stops_ = 0;
};

int number(Stream stream) {
  return static_cast<int>(reinterpret_cast<intptr_t>(stream));
}
Stream stream(int number) {
  return reinterpret_cast<Stream>(static_cast<intptr_t>(number));
}

/// The handle of a stream of each thread. Thread 1 means stream 2, and thread 2 means stream 3.
const Stream kOfThread = stream(99);

class MachineStreams : public Streams {
 public:
  MachineStreams(Machine& machine, size_t first_mark) : machine_(machine), first_mark_(first_mark) {}
  uint64_t thread_of(Stream stream) const override { return stream == kOfThread ? machine_.thread : 0; }
  Result<std::optional<uint64_t>> capture(Stream stream) const override { return machine_.capture(meant(stream)); }
  Status record(Mark mark, Stream stream) override { return machine_.record(index(mark), meant(stream)); }
  Status wait(Stream stream, Mark mark) override { return machine_.wait(meant(stream), index(mark)); }
  Status finish(Mark mark) override { return machine_.finish(index(mark)); }
  Status finish_all() override { return machine_.finish_all(); }

 private:
  /// The stream that the thread's handle means.
  int meant(Stream stream) const {
    return stream == kOfThread ? static_cast<int>(machine_.thread) + 1 : number(stream);
  }
  size_t index(Mark mark) const { return first_mark_ + static_cast<size_t>(mark); }
  Machine& machine_;
  size_t first_mark_;
};

class StreamOrderTest : public testing::Test {
 protected:
  /// Enqueues an operation, which must run after all `earlier` operations, and adds it to them.
  void operate(int on, Work& earlier) {
    ASSERT_TRUE(order_.begin(stream(on)).ok());
    const Work before = machine_.before(on);
    EXPECT_TRUE(std::includes(before.begin(), before.end(), earlier.begin(), earlier.end()));
    earlier.insert(machine_.enqueue(on));
    ASSERT_TRUE(order_.end().ok());
  }
  void operate(const std::vector<int>& streams, int operations, Work& earlier) {
    std::vector<Stream> handles;
    std::transform(streams.begin(), streams.end(), std::back_inserter(handles), stream);
    Work held;
    for (const int other : streams) held.merge(machine_.before(other));
    ASSERT_TRUE(order_.gather(handles).ok());
    const Work before = machine_.before(streams.front());
    EXPECT_TRUE(std::includes(before.begin(), before.end(), held.begin(), held.end()));
    for (int i = 0; i < operations; ++i) operate(streams.front(), earlier);
    ASSERT_TRUE(order_.release(handles).ok());
    for (const int other : streams) {
      const Work after = machine_.before(other);
      EXPECT_TRUE(std::includes(after.begin(), after.end(), earlier.begin(), earlier.end()));
    }
  }

  Machine machine_;
  StreamOrder order_{std::make_unique<MachineStreams>(machine_, 0)};
  Work eager_;
};

TEST_F(StreamOrderTest, OneStreamCostsAnEventAndNoWait) {
  for (int i = 0; i < 10; ++i) operate(1, eager_);
  EXPECT_EQ(machine_.events(), 10u);
}

TEST_F(StreamOrderTest, OperationsWaitForEachOtherAndForNothingElse) {
  operate(1, eager_);
  operate(2, eager_);
  const int beside = machine_.enqueue(2);
  operate(1, eager_);
  EXPECT_FALSE(machine_.before(1).contains(beside));
  operate(0, eager_);
}

TEST_F(StreamOrderTest, AGroupIsOnAllItsStreams) {
  machine_.enqueue(2);
  machine_.enqueue(3);
  operate({1, 2, 3}, 2, eager_);
  operate({3, 1}, 1, eager_);
  operate(2, eager_);
}

/// Otherwise the communicators of one rank would wait for each other in one order, and the communicators of its peer in
/// the opposite order.
TEST_F(StreamOrderTest, CommunicatorsThatSwapStreamsInAGroupDoNotWaitForEachOther) {
  StreamOrder other(std::make_unique<MachineStreams>(machine_, 2));
  for (StreamOrder* order : {&order_, &other}) {
    const int on = order == &order_ ? 1 : 2;
    ASSERT_TRUE(order->begin(stream(on)).ok());
    machine_.enqueue(on);
    ASSERT_TRUE(order->end().ok());
  }
  ASSERT_TRUE(order_.gather(std::vector{stream(2)}).ok());
  ASSERT_TRUE(other.gather(std::vector{stream(1)}).ok());
  ASSERT_TRUE(order_.begin(stream(2)).ok());
  const int moved = machine_.enqueue(2);
  ASSERT_TRUE(order_.end().ok());
  ASSERT_TRUE(other.begin(stream(1)).ok());
  EXPECT_FALSE(machine_.before(1).contains(moved));
}

TEST_F(StreamOrderTest, OneHandleMeansAStreamOfEachThread) {
  for (const uint64_t thread : {1, 1, 2, 1}) {
    machine_.thread = thread;
    ASSERT_TRUE(order_.begin(kOfThread).ok());
    const Work before = machine_.before(static_cast<int>(thread) + 1);
    EXPECT_TRUE(std::includes(before.begin(), before.end(), eager_.begin(), eager_.end()));
    eager_.insert(machine_.enqueue(static_cast<int>(thread) + 1));
    ASSERT_TRUE(order_.end().ok());
  }
}

TEST_F(StreamOrderTest, ACaptureCannotGoOnFromAStreamOfADifferentThread) {
  machine_.begin_capture(2, 7);
  machine_.begin_capture(3, 7);
  ASSERT_TRUE(order_.begin(kOfThread).ok());
  ASSERT_TRUE(order_.end().ok());
  machine_.thread = 2;
  EXPECT_EQ(order_.begin(kOfThread).code(), Code::kInvalidArgument);
  machine_.thread = 1;
  EXPECT_TRUE(order_.begin(kOfThread).ok());
}

TEST_F(StreamOrderTest, AGroupIsInOneCapture) {
  machine_.begin_capture(1, 7);
  EXPECT_EQ(order_.gather(std::vector{stream(1), stream(2)}).code(), Code::kInvalidArgument);
  EXPECT_EQ(order_.gather(std::vector{stream(2), stream(1)}).code(), Code::kInvalidArgument);
  machine_.begin_capture(2, 8);
  EXPECT_EQ(order_.gather(std::vector{stream(2), stream(1)}).code(), Code::kInvalidArgument);
  EXPECT_EQ(machine_.events(), 0u);
}

TEST_F(StreamOrderTest, ACaptureIsBesideWhatIsNot) {
  operate(1, eager_);
  machine_.begin_capture(2, 7);
  machine_.begin_capture(3, 7);
  Work captured;
  operate(2, captured);
  operate(3, captured);
  operate(0, eager_);  // while the capture goes on
  operate({2, 3}, 1, captured);
  operate(1, eager_);
  machine_.end_captures();
  operate(3, eager_);
}

TEST_F(StreamOrderTest, ALaterCaptureHidesNothing) {
  operate(1, eager_);
  machine_.begin_capture(1, 7);
  operate(2, eager_);
  EXPECT_TRUE(order_.finish().ok());
}

/// CUDA would crash: the machine fails at every use of that stream.
TEST_F(StreamOrderTest, AStreamThatIsGoneIsNotTouched) {
  operate(1, eager_);
  machine_.destroy(1);
  operate(2, eager_);
  machine_.destroy(2);
  ASSERT_TRUE(order_.finish().ok());
  for (const int operation : eager_) EXPECT_TRUE(machine_.through(operation));
  EXPECT_EQ(machine_.stops(), 0u);
}

TEST_F(StreamOrderTest, TheEndWaitsForOperationsAndForNothingElse) {
  EXPECT_TRUE(order_.finish().ok());
  EXPECT_FALSE(machine_.through(machine_.enqueue(3)));
  for (const int on : {1, 1, 2}) {
    operate(on, eager_);
    const int beside = machine_.enqueue(3);
    ASSERT_TRUE(order_.finish().ok());
    for (const int operation : eager_) EXPECT_TRUE(machine_.through(operation));
    EXPECT_FALSE(machine_.through(beside));
  }
  EXPECT_EQ(machine_.stops(), 0u);
}

TEST_F(StreamOrderTest, TheEndAfterACaptureWaitsForTheWholeGpu) {
  machine_.begin_capture(1, 7);
  Work captured;
  operate(1, captured);
  machine_.end_captures();
  const int replay = machine_.enqueue(3);
  ASSERT_TRUE(order_.finish().ok());
  EXPECT_TRUE(machine_.through(replay));
}

/// Streams 0 and 1 are never captured, 2 and 3 are now and then.
TEST_F(StreamOrderTest, RandomOperationsRunOneAfterAnother) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Work captured;
  uint64_t captures = 0;
  bool capturing = false;
  for (int i = 0; i < 2000 && !HasFailure(); ++i) {
    const bool inside = capturing && random() % 2 == 0;
    const int first = static_cast<int>(random() % 2) + (inside ? 2 : 0);
    Work& earlier = inside ? captured : eager_;
    switch (random() % 8) {
      case 0:
        operate({first, first ^ 1}, 1 + static_cast<int>(random() % 3), earlier);
        break;
      case 1:
        machine_.enqueue(first);
        break;
      case 2:
        machine_.end_captures();
        captured.clear();
        capturing = !capturing;
        if (!capturing) break;
        ++captures;
        for (const int other : {2, 3}) machine_.begin_capture(other, captures);
        break;
      default:
        operate(first, earlier);
    }
  }
  EXPECT_EQ(machine_.stops(), 0u);
}

}  // namespace
}  // namespace tutti::backend
