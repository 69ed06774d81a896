// SPDX-License-Identifier: Apache-2.0
#include "backend/history.h"

#include <fmt/format.h>

namespace tutti::backend {
namespace {

constexpr uint64_t kMessages = 8;  // bit of a phase word

}  // namespace

std::string describe(const Record& record) {
  return describe(Call::of_kind(record.kind, record.count));
}

std::string describe(const Progress& progress) {
  static constexpr std::array<const char*, 5> kPhases = {"", "is in", "has done", "failed in", "has enqueued"};
  if (progress.phase == Progress::Phase::kNone) return "has made no call";
  const char* const does = kPhases[static_cast<size_t>(progress.phase) % kPhases.size()];
  if (progress.in_message != 0)
    return fmt::format("{} {} after call {}", does, describe(progress.message), progress.number);
  return fmt::format("{} call {}, {}", does, progress.number, describe(progress.record));
}

History::~History() {
  for (const auto& records : messages_) delete records.load(std::memory_order_relaxed);
}

void History::set_seed(uint64_t seed) {
  seed_ = seed;
  calls_.set_seed(seed);
}

uint64_t History::add_message(Turn::Kind kind, uint32_t peer, const CallShape& shape) {
  auto& records = messages_[index(kind, peer)];
  if (records.load(std::memory_order_relaxed) == nullptr) {
    const bool sends = kind == Turn::Kind::kSend;
    const uint64_t from = sends ? rank_ : peer;
    const uint64_t to = sends ? peer : rank_;
    records.store(new MessageRecords(mix(seed_, from << 32 | to)), std::memory_order_release);
  }
  return records.load(std::memory_order_relaxed)->add(shape);
}

void History::enter_messages(Phase phase, const CallShape& first) {
  message_kind_.store(first.kind, std::memory_order_relaxed);
  message_count_.store(first.count, std::memory_order_relaxed);
  phase_.store(word(phase) | kMessages, std::memory_order_release);
}

Progress History::progress() const {
  Progress progress;
  std::optional<Record> record;
  while (!record) {
    const uint64_t phase = phase_.load(std::memory_order_acquire);
    progress.number = phase >> 4;
    progress.phase = static_cast<Phase>(phase & (kMessages - 1));
    progress.in_message = (phase & kMessages) != 0 ? 1 : 0;
    record = calls_.at(progress.number);  // nothing: the rank has made many calls since
  }
  progress.record = *record;
  progress.message = {message_kind_.load(std::memory_order_relaxed), message_count_.load(std::memory_order_relaxed), 0};
  return progress;
}

}  // namespace tutti::backend
