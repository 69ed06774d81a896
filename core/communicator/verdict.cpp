// SPDX-License-Identifier: Apache-2.0
#include "communicator/verdict.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "bootstrap/rank_list.h"

namespace tutti::communicator {
namespace {

using bootstrap::rank_list;
using Presence = Report::Presence;

constexpr const char* kSameCalls =
    "every rank must make the same calls in the same order: look for a branch that depends on the rank";

/// Ranks grouped by their statement, in the order of the first rank of each group.
class Groups {
 public:
  void add(std::string text, size_t rank) {
    auto known = std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) { return group.first == text; });
    if (known == groups_.end()) known = groups_.insert(known, {std::move(text), {}});
    known->second.push_back(static_cast<int>(rank));
  }
  size_t size() const { return groups_.size(); }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }
  /// "A on ranks 0,2, B on rank 1 and C on rank 3"
  std::string join(const char* on = " on ") const {
    std::string text;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const char* const before = i == 0 ? "" : i + 1 == groups_.size() ? " and " : ", ";
      text += fmt::format("{}{}{}{}", before, groups_[i].first, on, rank_list(groups_[i].second));
    }
    return text;
  }

 private:
  std::vector<std::pair<std::string, std::vector<int>>> groups_;
};

constexpr size_t kNamedRanks = 16;

/// Counts the parts of a text that has one for each rank, which would grow with the job. After kNamedRanks parts, the
/// text states the number of further ranks.
class NamedRanks {
 public:
  /// Counts a rank. False: the text does not name it.
  bool add() { return ++count_ <= kNamedRanks; }
  bool is_first() const { return count_ == 1; }
  /// "<separator> and 4 further ranks"; empty: the text names all ranks.
  std::string further(const char* separator) const {
    if (count_ <= kNamedRanks) return {};
    const size_t more = count_ - kNamedRanks;
    return fmt::format("{} and {} further {}", separator, more, more == 1 ? "rank" : "ranks");
  }

 private:
  size_t count_ = 0;
};

using SeriesOf = Series Report::*;

/// The first number of which two ranks have different digests; 0: none.
uint64_t first_difference(Reports reports, SeriesOf series) {
  std::unordered_map<uint64_t, uint64_t> digests;  // by number; the digest of the lowest rank that knows it
  uint64_t first = 0;
  for (const Report& report : reports) {
    uint64_t number = (report.*series).first;
    for (const Record& record : (report.*series).records) {
      const bool differs = digests.try_emplace(number, record.digest).first->second != record.digest;
      if (differs && (first == 0 || number < first)) first = number;
      ++number;
    }
  }
  return first;
}

/// Whether all ranks that know record `number` had the same digest before it.
bool agreed_before(Reports reports, SeriesOf series, uint64_t number) {
  if (number == 1) return true;
  return std::all_of(reports.begin(), reports.end(), [&](const Report& report) {
    const Series& known = report.*series;
    return known.at(number) == nullptr || known.at(number - 1) != nullptr;
  });
}

Groups group(Reports reports, SeriesOf series, uint64_t number) {
  Groups groups;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (const Record* const record = (reports[rank].*series).at(number)) groups.add(describe(*record), rank);
  }
  return groups;
}

struct Difference {
  uint64_t number;   ///< number of the call or message
  std::string text;  ///< "call 17 is A on rank 0 and B on rank 1"
};

std::optional<Difference> find_difference(Reports reports, SeriesOf series, const std::string& what,
                                          const std::string& them) {
  const uint64_t number = first_difference(reports, series);
  if (number == 0) return std::nullopt;
  const Groups groups = group(reports, series, number);
  if (groups.size() > 1) return Difference{number, fmt::format("{} {}{} is {}", what, number, them, groups.join())};
  if (agreed_before(reports, series, number)) {
    return Difference{
        number, fmt::format("{} {}{} is {}, but the ranks run it in different ways, by other algorithms or protocols",
                            what, number, them, groups.join())};
  }
  return Difference{number, fmt::format("the difference lies before {} {}{}, which is {}; earlier ones are no longer "
                                        "known",
                                        what, number, them, groups.join())};
}

/// The text about ranks that have made fewer calls than the call that differs.
std::string describe_behind(Reports reports, uint64_t number) {
  std::string text;
  NamedRanks behind;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const Report& report = reports[rank];
    const bool is_present = report.presence == Presence::kPresent && report.progress.number < number;
    const bool has_left = report.presence == Presence::kLeft && report.calls.latest < number;
    if ((is_present || has_left) && behind.add()) text += fmt::format("; rank {} {}", rank, state_of(report));
  }
  return text + behind.further(";");
}

std::string plural(const std::vector<int>& ranks, const char* one, const char* many) {
  return fmt::format("{} {}", rank_list(ranks), ranks.size() == 1 ? one : many);
}

/// A rank on a GPU does not know which of its enqueued calls the waiting kernel runs.
std::string describe_kernel(const Progress& progress) {
  if (progress.in_message != 0) return "a GPU kernel; it " + describe(progress);
  return fmt::format("a GPU kernel of call {} ({}) or of an earlier call", progress.number, describe(progress.record));
}

std::string describe_turn(const Report& report, size_t rank) {
  const backend::Turn& turn = report.wait.turn;
  if (report.progress.phase == Progress::Phase::kEnqueued) return describe_kernel(report.progress);
  switch (turn.kind) {
    case backend::Turn::Kind::kCollective:
      return fmt::format("call {} ({})", turn.number, describe(report.progress.record));
    case backend::Turn::Kind::kSend:
      return fmt::format("message {} from rank {} to rank {}", turn.number, rank, turn.peer);
    case backend::Turn::Kind::kReceive:
      return fmt::format("message {} from rank {} to rank {}", turn.number, turn.peer, rank);
  }
  return {};
}

/// "ranks 0-1 wait in call 17 (...) and rank 3 waits in message 4 ...".
std::string describe_waiters(Reports reports) {
  Groups groups;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].wait.waits != 0) groups.add(describe_turn(reports[rank], rank), rank);
  }
  std::string text;
  size_t named = 0;
  size_t waiting = 0;
  for (const auto& [turn, ranks] : groups) {
    waiting += ranks.size();
    if (++named > kNamedRanks) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", plural(ranks, "waits in", "wait in"), turn);
  }
  return named > kNamedRanks ? fmt::format("{}, in all {} ranks wait", text, waiting) : text;
}

}  // namespace

std::optional<std::string> different_calls(Reports reports) {
  const auto difference = find_difference(reports, &Report::calls, "call", "");
  if (!difference) return std::nullopt;
  return fmt::format("ranks made different calls: {}{}; {}", difference->text,
                     describe_behind(reports, difference->number), kSameCalls);
}

std::optional<std::string> different_messages(Reports reports, uint32_t sender, uint32_t receiver) {
  const auto difference =
      find_difference(reports, &Report::messages, "message", fmt::format(" from rank {} to rank {}", sender, receiver));
  if (!difference) return std::nullopt;
  return fmt::format(
      "ranks made different calls: {}; the receives of a rank must have the order, types and counts of "
      "the peer's sends",
      difference->text);
}

std::optional<std::string> different_counts(Reports reports) {
  Groups groups;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const Report& report = reports[rank];
    if (report.presence == Presence::kPresent || report.presence == Presence::kLeft)
      groups.add(fmt::to_string(report.calls.latest), rank);
  }
  if (groups.size() < 2) return std::nullopt;
  return fmt::format(
      "ranks made different numbers of calls: {}; {}; results of calls with the same arguments may be "
      "those of an earlier or later one",
      groups.join(), kSameCalls);
}

std::string state_of(const Report& report, uint64_t awaited) {
  switch (report.presence) {
    case Presence::kSilent:
      return "does not answer: it is stopped, or cut off";
    case Presence::kLeft:
      return fmt::format("left after call {}", report.calls.latest);
    case Presence::kLost:
      return "is lost";
    case Presence::kPresent:
      break;
  }
  const Progress& progress = report.progress;
  std::string text = describe(progress);
  if (progress.phase != Progress::Phase::kDone) return text;
  const bool came_so_far = progress.in_message == 0 && awaited != 0 && progress.number >= awaited;
  return text + (came_so_far ? ", but its data has not arrived" : ", and is in application code");
}

std::string states_of(Reports reports, uint64_t awaited) {
  std::string text;
  if (reports.size() <= kNamedRanks) {
    for (size_t rank = 0; rank < reports.size(); ++rank)
      text += fmt::format("; rank {} {}", rank, state_of(reports[rank], awaited));
    return text;
  }
  Groups groups;
  for (size_t rank = 0; rank < reports.size(); ++rank) groups.add(state_of(reports[rank], awaited), rank);
  for (const auto& [state, ranks] : groups) text += fmt::format("; {}: {}", rank_list(ranks), state);
  return text;
}

std::string describe_wait(Reports reports, uint32_t own) {
  const ToldWait& wait = reports[own].wait;
  const uint64_t awaited = wait.turn.kind == backend::Turn::Kind::kCollective ? wait.turn.number : 0;
  std::set<int> missing;  // ranks that are waited for and wait for no other
  for (const Report& report : reports) {
    if (report.wait.waits != 0 && report.wait.peer < reports.size() && reports[report.wait.peer].wait.waits == 0)
      missing.insert(static_cast<int>(report.wait.peer));
  }
  std::string text = fmt::format("no progress for {} s: {} since {:%H:%M:%S} UTC", wait.milliseconds / 1000,
                                 describe_waiters(reports), fmt::gmtime(static_cast<std::time_t>(wait.since)));
  if (missing.empty()) {
    text += ", for each other:";
    NamedRanks waiting;
    for (size_t rank = 0; rank < reports.size(); ++rank) {
      if (reports[rank].wait.waits != 0 && waiting.add())
        text += fmt::format("{} rank {} for rank {}", waiting.is_first() ? "" : ",", rank, reports[rank].wait.peer);
    }
    return text + waiting.further("");
  }
  text += ", for " + rank_list(std::vector<int>(missing.begin(), missing.end()));
  NamedRanks described;
  for (const int rank : missing) {
    if (described.add())
      text += fmt::format("; rank {} {}", rank, state_of(reports[static_cast<size_t>(rank)], awaited));
  }
  return text + described.further(";");
}

}  // namespace tutti::communicator
