// SPDX-License-Identifier: Apache-2.0
// The latest calls and messages of this rank, for comparisons with other ranks.
//
// Every call has a record: its kind, its count, and a digest. The digest of call n is computed from the digest of call
// n - 1, the shape of call n, and n. Two ranks with equal digests have therefore made equal calls up to n. The messages
// between two ranks in one direction form a series of their own, with the same digests on both ends.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/attendance.h"
#include "backend/call.h"
#include "backend/call_shape.h"

namespace tutti::backend {

struct Record {
  uint64_t kind = 0;    ///< collective, type, operation and root: Call::kind_of()
  uint64_t count = 0;   ///< of elements
  uint64_t digest = 0;  ///< digest of this call and all earlier calls
};
/// "all_reduce of 10 × float32, sum".
std::string describe(const Record& record);

/// The latest records of one series, numbered from 1. One thread writes, any thread reads.
template <size_t kSize>
class Records {
 public:
  /// How many of the latest records can be read.
  static constexpr uint64_t kReadable = kSize - 2;

  explicit Records(uint64_t seed = 0) : seed_(seed), digest_(seed) {}
  /// Before the first record.
  void set_seed(uint64_t seed) { seed_ = digest_ = seed; }

  /// Adds the next record, and returns its digest.
  uint64_t add(const CallShape& shape) {
    const uint64_t number = latest_.load(std::memory_order_relaxed) + 1;
    digest_ = mix(digest_, shape.hash + number);
    // Release: a reader that finds one of these words (acquire in at()) also finds the earlier number.
    Slot& slot = slots_[number % kSize];
    slot.kind.store(shape.kind, std::memory_order_release);
    slot.count.store(shape.count, std::memory_order_release);
    slot.digest.store(digest_, std::memory_order_release);
    latest_.store(number, std::memory_order_release);  // acquire in latest() and at()
    return digest_;
  }

  /// Removes the latest record: its call was refused on this rank, and will not be made.
  void take_back() {
    const uint64_t number = latest_.load(std::memory_order_relaxed) - 1;
    digest_ = number == 0 ? seed_ : slots_[number % kSize].digest.load(std::memory_order_relaxed);
    latest_.store(number, std::memory_order_release);  // acquire in latest() and at()
  }

  uint64_t latest() const { return latest_.load(std::memory_order_acquire); }
  /// Nothing for records that are too old, or that do not exist. Record 0 stands for the beginning of the series.
  std::optional<Record> at(uint64_t number) const {
    if (number > latest()) return std::nullopt;
    if (number == 0) return Record{0, 0, seed_};
    const Slot& slot = slots_[number % kSize];
    const Record record{slot.kind.load(std::memory_order_acquire), slot.count.load(std::memory_order_acquire),
                        slot.digest.load(std::memory_order_acquire)};
    // If a word belonged to record number + kSize, `latest` is at least number + kSize - 1 by now.
    if (latest() > number + kReadable) return std::nullopt;
    return record;
  }

 private:
  struct Slot {
    std::atomic<uint64_t> kind{0};
    std::atomic<uint64_t> count{0};
    std::atomic<uint64_t> digest{0};
  };
  std::array<Slot, kSize> slots_;
  std::atomic<uint64_t> latest_{0};
  uint64_t seed_;
  uint64_t digest_;  // digest of the latest record; only for the writer
};

using CallRecords = Records<256>;
using MessageRecords = Records<32>;

/// The progress of a rank. Plain data, as it is sent.
struct Progress {
  enum class Phase : uint32_t { kNone, kIn, kDone, kFailed, kEnqueued };
  Phase phase = Phase::kNone;
  uint32_t in_message = 0;  ///< 1: the phase is that of sends and receives after call `number`
  uint64_t number = 0;      ///< number of the latest collective call
  Record record;            ///< record of this call; digest: of the calls up to `number`
  Record message;           ///< the first message of the latest group
};
/// "has done call 17, all_reduce of 8 × float32, sum".
std::string describe(const Progress& progress);

/// add_*() and enter() by the thread that makes calls, all else by any thread.
class History {
 public:
  using Phase = Progress::Phase;

  History(uint32_t rank, uint32_t rank_count) : rank_(rank), messages_(size_t{2} * rank_count) {}
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;
  /// The secret that only ranks of one communicator share. Before the first call.
  void set_seed(uint64_t seed);

  /// The digests of the call or message.
  uint64_t add_call(const CallShape& shape) { return calls_.add(shape); }
  uint64_t add_message(Turn::Kind kind, uint32_t peer, const CallShape& shape);
  /// Removes the latest call, or the latest message, which this rank does not make.
  void take_back_call() { calls_.take_back(); }
  void take_back_message(Turn::Kind kind, uint32_t peer) {
    messages_[index(kind, peer)].load(std::memory_order_relaxed)->take_back();
  }

  /// The phase of the latest call.
  void enter(Phase phase) { phase_.store(word(phase), std::memory_order_release); }
  /// How the latest call, or the latest messages, ended.
  void enter_end(Phase phase) {
    const uint64_t now = phase_.load(std::memory_order_relaxed);
    phase_.store((now & ~uint64_t{7}) | static_cast<uint64_t>(phase), std::memory_order_release);
  }
  /// The phase of messages, of which this is the first.
  void enter_messages(Phase phase, const CallShape& first);

  const CallRecords& calls() const { return calls_; }
  /// Null: the peer does not exist, or there was no message of this kind.
  const MessageRecords* messages(Turn::Kind kind, uint32_t peer) const {
    const size_t place = index(kind, peer);
    return place >= messages_.size() ? nullptr : messages_[place].load(std::memory_order_acquire);
  }
  Progress progress() const;

 private:
  static size_t index(Turn::Kind kind, uint32_t peer) { return size_t{2} * peer + (kind == Turn::Kind::kSend ? 1 : 0); }

  /// The number of the latest call, bit 3 for messages, and the phase.
  uint64_t word(Phase phase) const { return calls_.latest() << 4 | static_cast<uint64_t>(phase); }

  const uint32_t rank_;
  uint64_t seed_ = 0;
  CallRecords calls_;
  std::vector<std::atomic<MessageRecords*>> messages_;  // owned; release in add_message(), acquire in messages()
  std::atomic<uint64_t> phase_{0};                      // a word(); release in enter*(), acquire in progress()
  std::atomic<uint64_t> message_kind_{0};               // relaxed: a verdict may show the message before
  std::atomic<uint64_t> message_count_{0};
};

}  // namespace tutti::backend
