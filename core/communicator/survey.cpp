// SPDX-License-Identifier: Apache-2.0
#include "communicator/survey.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace tutti::communicator {
namespace {

using bootstrap::Bytes;

constexpr int64_t kLastSecond = 253402300799;  // last second of the year 9999, the limit of texts

Status malformed() {
  return {Code::kInvalidArgument, "a rank's report about its calls is malformed"};
}

template <class T>
Bytes bytes_of(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(values);
  return Bytes(bytes.begin(), bytes.end());
}

template <class T>
Status read(std::span<const std::byte> bytes, T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (bytes.size() != sizeof value) return malformed();
  std::memcpy(&value, bytes.data(), sizeof value);
  return {};
}

}  // namespace

const Record* Series::at(uint64_t number) const {
  return number >= first && number < end() ? &records[number - first] : nullptr;
}

Report answer(const Question& question, uint32_t rank, const History& history, const backend::Waiting& waiting) {
  Report report;
  report.presence = Report::Presence::kPresent;
  report.progress = history.progress();
  report.calls = Series::of(history.calls(), question.first_call, question.last_call);
  if (const auto wait = waiting.now()) {
    const auto waited = backend::Waiting::Clock::now() - wait->since;
    const auto since = std::chrono::system_clock::now() - waited;
    report.wait = {1, wait->peer, wait->turn,
                   static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()),
                   std::chrono::duration_cast<std::chrono::seconds>(since.time_since_epoch()).count()};
  }
  const bool sends = rank == question.sender;
  if (question.last_message == 0 || (!sends && rank != question.receiver)) return report;
  const MessageRecords* const messages = history.messages(
      sends ? backend::Turn::Kind::kSend : backend::Turn::Kind::kReceive, sends ? question.receiver : question.sender);
  if (messages != nullptr) report.messages = Series::of(*messages, question.first_message, question.last_message);
  return report;
}

Bytes encode(const Question& question) {
  return bytes_of(std::span(&question, 1));
}

Bytes encode(const Series& series) {
  const std::array<uint64_t, 2> numbers = {series.latest, series.first};
  const std::array<Bytes, 2> parts = {bytes_of(std::span<const uint64_t>(numbers)),
                                      bytes_of(std::span<const Record>(series.records))};
  return bootstrap::pack(parts);
}

Bytes encode(const Report& report) {
  const std::array<Bytes, 4> parts = {bytes_of(std::span(&report.progress, 1)), bytes_of(std::span(&report.wait, 1)),
                                      encode(report.calls), encode(report.messages)};
  return bootstrap::pack(parts);
}

Result<Question> decode_question(std::span<const std::byte> bytes) {
  Question question;
  TUTTI_TRY(read(bytes, question));
  return question;
}

Result<Series> decode_series(std::span<const std::byte> bytes) {
  TUTTI_ASSIGN(const std::vector<Bytes> parts, bootstrap::unpack(bytes));
  if (parts.size() != 2 || parts[1].size() % sizeof(Record) != 0) return malformed();
  std::array<uint64_t, 2> numbers{};
  TUTTI_TRY(read(parts[0], numbers));
  Series series{numbers[0], numbers[1], std::vector<Record>(parts[1].size() / sizeof(Record))};
  if (!series.records.empty()) std::memcpy(series.records.data(), parts[1].data(), parts[1].size());
  const bool numbered = series.records.empty() || (series.first <= series.latest && series.latest < UINT64_MAX &&
                                                   series.records.size() - 1 <= series.latest - series.first);
  if (series.first == 0 || !numbered) return malformed();
  return series;
}

Result<Report> decode_report(std::span<const std::byte> bytes) {
  TUTTI_ASSIGN(const std::vector<Bytes> parts, bootstrap::unpack(bytes));
  if (parts.size() != 4) return malformed();
  Report report;
  report.presence = Report::Presence::kPresent;
  TUTTI_TRY(read(parts[0], report.progress));
  TUTTI_TRY(read(parts[1], report.wait));
  const bool known = report.progress.phase <= Progress::Phase::kEnqueued &&
                     report.wait.turn.kind <= backend::Turn::Kind::kReceive && report.wait.since >= 0 &&
                     report.wait.since <= kLastSecond;
  if (!known) return malformed();
  TUTTI_ASSIGN(report.calls, decode_series(parts[2]));
  TUTTI_ASSIGN(report.messages, decode_series(parts[3]));
  return report;
}

}  // namespace tutti::communicator
