// SPDX-License-Identifier: Apache-2.0
// The messages of ranks about their calls through the hub: the payloads of bootstrap::Bootstrap::ask().
#pragma once

#include <span>
#include <vector>

#include "backend/history.h"
#include "backend/waiting.h"
#include "bootstrap/wire.h"

namespace tutti::communicator {

using backend::CallRecords;
using backend::History;
using backend::MessageRecords;
using backend::Progress;
using backend::Record;

/// Consecutive records of a series that a rank still has.
struct Series {
  uint64_t latest = 0;  ///< number of the latest record that there is
  uint64_t first = 1;   ///< number of the first in `records`
  std::vector<Record> records;

  uint64_t end() const { return first + records.size(); }
  /// Null: not known.
  const Record* at(uint64_t number) const;
  /// The records `from` to `to`. If the series ends before `from`, its last record.
  template <class Of>
  static Series of(const Of& records, uint64_t from, uint64_t to);
};

/// The question, in plain data: it asks for the progress of every rank, and the records of these calls and messages.
struct Question {
  uint64_t first_call = 0;
  uint64_t last_call = 0;  ///< 0: none
  uint32_t sender = 0;
  uint32_t receiver = 0;
  uint64_t first_message = 0;
  uint64_t last_message = 0;  ///< 0: none
};

/// A wait of a rank, in plain data.
struct ToldWait {
  uint32_t waits = 0;  ///< 0: the rank does not wait
  uint32_t peer = 0;   ///< the rank that is waited for
  backend::Turn turn;
  uint64_t milliseconds = 0;  ///< without progress
  int64_t since = 0;          ///< seconds since 1970, by the rank's clock
};

/// The state of one rank, as far as it is known.
struct Report {
  enum class Presence : uint32_t { kSilent, kPresent, kLeft, kLost };
  Presence presence = Presence::kSilent;
  Progress progress;
  ToldWait wait;
  Series calls;
  Series messages;  ///< at this rank's end
};

/// This rank's answer.
Report answer(const Question& question, uint32_t rank, const History& history, const backend::Waiting& waiting);

bootstrap::Bytes encode(const Question& question);
bootstrap::Bytes encode(const Report& report);
bootstrap::Bytes encode(const Series& series);
/// kInvalidArgument for bytes that encode() does not make.
Result<Question> decode_question(std::span<const std::byte> bytes);
Result<Report> decode_report(std::span<const std::byte> bytes);
Result<Series> decode_series(std::span<const std::byte> bytes);

template <class Of>
Series Series::of(const Of& records, uint64_t from, uint64_t to) {
  Series series;
  series.latest = records.latest();
  const uint64_t last = std::min(to, series.latest);
  const uint64_t kept = series.latest > Of::kReadable ? series.latest - Of::kReadable + 1 : 1;
  for (uint64_t number = std::max(kept, std::min(from, last)); number <= last; ++number) {
    const auto record = records.at(number);
    if (!record) series.records.clear();  // overwritten: begins later
    if (series.records.empty()) series.first = record ? number : number + 1;
    if (record) series.records.push_back(*record);
  }
  return series;
}

}  // namespace tutti::communicator
