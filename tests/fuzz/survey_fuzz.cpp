// SPDX-License-Identifier: Apache-2.0
// Any bytes as messages of ranks about their calls: a question is answered or refused, and every text can be made of
// reports. The first byte gives the number of ranks, and the meaning of the remaining bytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "bootstrap/wire.h"
#include "communicator/survey.h"
#include "communicator/verdict.h"

namespace {

using namespace tutti::communicator;  // NOLINT(google-build-using-namespace): a program of one file
namespace bootstrap = tutti::bootstrap;
using tutti::backend::Call;
using tutti::backend::CallShape;
using tutti::backend::History;
using tutti::backend::Turn;
using tutti::backend::Waiting;
using Bytes = std::span<const std::byte>;

void demand(bool holds) {
  if (!holds) std::abort();
}

bool equal(Bytes one, Bytes other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end());
}

void ask(Bytes bytes, uint32_t ranks) {
  History history(0, ranks);
  Waiting waiting;
  const CallShape shape = CallShape::of(Call::of_kind(0, 8));
  for (int i = 0; i < 300; ++i) history.add_call(shape);  // more than are kept
  for (int i = 0; i < 40; ++i) history.add_message(Turn::Kind::kSend, 1, shape);
  waiting.begin(Waiting::Clock::now(), {Turn::Kind::kSend, 1, 41}, 1);
  const auto question = decode_question(bytes);
  if (!question.ok()) return;
  demand(equal(encode(*question), bytes));
  const auto report = decode_report(encode(answer(*question, 0, history, waiting)));
  demand(report.ok());
  demand(report->calls.records.size() <= CallRecords::kReadable);
  demand(report->messages.records.size() <= MessageRecords::kReadable);
}

/// Values from the input; zeros after its end.
class Source {
 public:
  explicit Source(Bytes bytes) : bytes_(bytes) {}
  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const size_t part = std::min(sizeof value, bytes_.size());
    if (part > 0) std::memcpy(static_cast<void*>(&value), bytes_.data(), part);
    bytes_ = bytes_.subspan(part);
    return value;
  }
  uint32_t below(uint32_t end) { return take<uint8_t>() % end; }
  /// Small and huge numbers.
  uint64_t number() { return uint64_t{take<uint8_t>()} << below(64); }

 private:
  Bytes bytes_;
};

/// As encode() arranges it.
bootstrap::Bytes series_from(Source& source) {
  Series series{source.number(), source.number(), std::vector<Record>(source.below(4))};
  for (Record& record : series.records) record = source.take<Record>();
  return encode(series);
}

bootstrap::Bytes bytes_of(const auto& value) {
  const Bytes bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

void make_texts(const std::vector<Report>& reports) {
  static_cast<void>(different_calls(reports));
  static_cast<void>(different_messages(reports, 0, 1));
  static_cast<void>(different_counts(reports));
  for (uint32_t rank = 0; rank < reports.size(); ++rank) {
    demand(!state_of(reports[rank], 7).empty());
    if (reports[rank].wait.waits != 0) demand(!describe_wait(reports, rank).empty());
  }
}

/// Every rank answers, has left, or is lost.
void tell(Bytes bytes, uint32_t ranks) {
  Source source(bytes);
  std::vector<Report> reports(ranks);
  for (Report& report : reports) {
    const auto presence = static_cast<Report::Presence>(source.below(4));
    const auto progress = source.take<Progress>();
    const auto wait = source.take<ToldWait>();
    const std::array<bootstrap::Bytes, 4> parts = {bytes_of(progress), bytes_of(wait), series_from(source),
                                                   series_from(source)};
    const auto told = decode_report(bootstrap::pack(parts));
    if (presence == Report::Presence::kPresent && told.ok()) {
      demand(equal(encode(*told), bootstrap::pack(parts)));
      report = *told;
    } else if (presence == Report::Presence::kLeft) {
      if (auto calls = decode_series(parts[2]); calls.ok()) report.calls = *std::move(calls);
    }
    if (presence != Report::Presence::kPresent) report.presence = presence;
  }
  make_texts(reports);
}

void decode(Bytes bytes) {
  if (const auto series = decode_series(bytes); series.ok()) demand(equal(encode(*series), bytes));
  if (const auto report = decode_report(bytes); report.ok()) demand(equal(encode(*report), bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Bytes bytes = std::as_bytes(std::span(data + 1, size - 1));
  const uint32_t ranks = 2 + data[0] / 4 % 3;
  switch (data[0] % 4) {
    case 0:
      ask(bytes, ranks);
      break;
    case 1:
      decode(bytes);
      break;
    default:
      tell(bytes, ranks);
  }
  return 0;
}
