// SPDX-License-Identifier: Apache-2.0
#include "communicator/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "communicator/verdict.h"
#include "log/log.h"

namespace tutti::communicator {
namespace {

using namespace std::chrono_literals;
using bootstrap::Answer;
using bootstrap::Departure;

constexpr base::Milliseconds kInterval{250};
constexpr uint32_t kRanksPerMillisecond = 1;  // rate that a hub serves easily
constexpr base::Milliseconds kAnswerLimit{1500};
constexpr base::Milliseconds kStateLimit{1000};  // for a warning, which is not to come late
constexpr uint32_t kLongestRest = 3;             // ticks between comparisons of calls that some ranks have not reached
constexpr std::chrono::nanoseconds kNearby = 2s;

}  // namespace

void Watch::start(const Options& options, bootstrap::Bootstrap& bootstrap, Fail fail) {
  options_ = options;
  bootstrap_ = &bootstrap;
  fail_ = std::move(fail);
  compared_messages_.resize(options.rank_count);
}

base::Milliseconds Watch::interval(uint32_t rank_count) {
  return std::max(kInterval, base::Milliseconds(rank_count / kRanksPerMillisecond));
}

bootstrap::Bytes Watch::answer(std::span<const std::byte> question) const {
  const auto asked = decode_question(question);
  if (!asked.ok()) return {};
  return encode(communicator::answer(*asked, options_.rank, history_, waiting_));
}

void Watch::tick() {
  if (found_) return;
  if (options_.compare) {
    compare_calls();
    compare_waiting_message();
    if (options_.on_gpu) compare_next_message();
  }
  warn();
}

/// The records up to that call or message, as many as are kept.
Question Watch::question_about(const backend::Turn& turn) const {
  Question question;
  const auto first = [&](uint64_t kept) { return turn.number > kept ? turn.number - kept + 1 : 1; };
  if (turn.kind == backend::Turn::Kind::kCollective) {
    question.first_call = first(CallRecords::kReadable);
    question.last_call = turn.number;
    return question;
  }
  const bool sends = turn.kind == backend::Turn::Kind::kSend;
  question.sender = sends ? options_.rank : turn.peer;
  question.receiver = sends ? turn.peer : options_.rank;
  question.first_message = first(MessageRecords::kReadable);
  question.last_message = turn.number;
  return question;
}

Report Watch::report_of(const Departure& departure) const {
  Report report;
  report.presence = Report::Presence::kLeft;
  if (auto calls = decode_series(departure.calls); calls.ok()) report.calls = *std::move(calls);
  report.calls.latest = departure.collectives;
  return report;
}

std::vector<Report> Watch::reports_of(const std::vector<Answer>& answers) const {
  std::vector<Report> reports(options_.rank_count);
  for (size_t rank = 0; rank < std::min(answers.size(), reports.size()); ++rank) {
    const Answer& answer = answers[rank];
    if (answer.state == Answer::State::kAnswered) {
      if (auto report = decode_report(answer.bytes); report.ok()) reports[rank] = *std::move(report);
    } else if (answer.state == Answer::State::kLost) {
      reports[rank].presence = Report::Presence::kLost;
    } else if (answer.state == Answer::State::kLeft) {
      reports[rank].presence = Report::Presence::kLeft;
    }
  }
  for (const Departure& departure : attendance_.departures()) {
    reports[static_cast<size_t>(departure.rank)] = report_of(departure);
  }
  return reports;
}

std::optional<std::string> Watch::describe_difference(const std::vector<Report>& reports,
                                                      const backend::Turn& turn) const {
  if (turn.kind == backend::Turn::Kind::kCollective) return different_calls(reports);
  const Question question = question_about(turn);
  return different_messages(reports, question.sender, question.receiver);
}

std::optional<std::string> Watch::different(const backend::Turn& turn) {
  const auto answers = bootstrap_->query(encode(question_about(turn)), base::time_in(kAnswerLimit));
  if (!answers.ok()) return std::nullopt;
  return describe_difference(reports_of(*answers), turn);
}

std::string Watch::states(const backend::Turn& turn) {
  const auto answers = bootstrap_->query(encode(Question{}), base::time_in(kAnswerLimit));
  if (!answers.ok()) return fmt::format("; the other ranks cannot be asked: {}", answers.status().text());
  const std::vector<Report> reports = reports_of(*answers);
  const uint64_t awaited = turn.kind == backend::Turn::Kind::kCollective ? turn.number : 0;
  return states_of(reports, awaited);
}

// Ranks that left.

std::optional<std::string> Watch::different_from(const Departure& departure) const {
  if (!options_.compare) return std::nullopt;
  std::array<Report, 2> both;  // few departures show a difference, and the reports of all ranks take long to make
  Report& left = both[0] = report_of(departure);
  if (left.calls.records.empty()) return std::nullopt;
  Report& own = both[1] =
      communicator::answer({left.calls.first, left.calls.end() - 1, 0, 0, 0, 0}, options_.rank, history_, waiting_);
  if (!different_calls(both)) return std::nullopt;
  std::vector<Report> reports(options_.rank_count);
  reports[static_cast<size_t>(departure.rank)] = std::move(left);
  reports[options_.rank] = std::move(own);
  return different_calls(reports);
}

std::optional<std::string> Watch::different_counts() const {
  if (!options_.compare) return std::nullopt;
  std::vector<Report> reports(options_.rank_count);
  std::string messages;
  for (const Departure& departure : attendance_.departures()) {
    const auto peer = static_cast<uint32_t>(departure.rank);
    reports[peer] = report_of(departure);
    const auto compare = [&](uint64_t sent, uint32_t sender, uint64_t received, uint32_t receiver) {
      if (sent == received) return;
      messages += fmt::format("{}rank {} sent {} messages to rank {}, which received {}", messages.empty() ? "" : "; ",
                              sender, sent, receiver, received);
    };
    compare(departure.sent, peer, attendance_.count_of(backend::Turn::Kind::kReceive, peer), options_.rank);
    compare(attendance_.count_of(backend::Turn::Kind::kSend, peer), options_.rank, departure.received, peer);
  }
  reports[options_.rank].presence = Report::Presence::kPresent;
  reports[options_.rank].calls.latest = attendance_.collectives();
  const auto calls = communicator::different_counts(reports);
  if (messages.empty()) return calls;
  if (!calls) return "ranks made different numbers of calls: " + messages;
  return fmt::format("{}; {}", *calls, messages);
}

// Comparisons in the background.

/// One rank compares for all. It asks for the digests at its own latest call, or of slower ranks at theirs.
void Watch::compare_calls() {
  const uint64_t number = history_.calls().latest();
  if (comparing_ || number == compared_ || attendance_.first_present() != options_.rank) return;
  if (rest_ > 0) {
    --rest_;
    return;
  }
  comparing_ = true;
  bootstrap_->ask(encode(Question{number, number, 0, 0, 0, 0}), base::time_in(kAnswerLimit),
                  [this, number](const Answers& answers) { take_calls(number, answers); });
}

void Watch::take_calls(uint64_t number, const Answers& answers) {
  comparing_ = false;
  if (!answers.ok()) return;
  uint64_t alike = number;
  const std::vector<Report> reports = reports_of(*answers);
  for (const Report& report : reports) {
    if (report.calls.records.empty()) {  // silent, or it has made no call yet
      if (report.presence != Report::Presence::kLeft) alike = std::min(alike, report.calls.latest);
      continue;
    }
    const uint64_t theirs = report.calls.end() - 1;
    const auto own = history_.calls().at(theirs);
    if (own && own->digest != report.calls.records.back().digest) {
      // A call that a GPU refuses is taken back: a difference counts if the next comparison finds it, too.
      if (options_.on_gpu && !std::exchange(suspects_, true)) return;
      return report_difference({backend::Turn::Kind::kCollective, 0, std::max(number, theirs)});
    }
    if (report.presence != Report::Presence::kLeft) alike = std::min(alike, theirs);
  }
  suspects_ = false;
  next_rest_ = alike > compared_ ? 0 : std::min(next_rest_ + 1, kLongestRest);
  rest_ = next_rest_;
  compared_ = std::max(compared_, alike);
}

/// Compares a message for which this rank waits: its peer may have made a different message, which uses a different
/// connection.
void Watch::compare_waiting_message() {
  const auto wait = waiting_.now();
  if (comparing_ || !wait || wait->turn.kind == backend::Turn::Kind::kCollective) return;
  const auto waited = backend::Waiting::Clock::now() - wait->since;
  // At 250 ms, 1 s and 4 s, and then every 8 s.
  const auto at = [&](base::Milliseconds moment) {
    return waited >= moment && waited < moment + interval(options_.rank_count);
  };
  if (at(kInterval) || at(1s) || at(4s) || (waited > 8s && waited % 8s < interval(options_.rank_count)))
    compare_message(wait->turn);
}

/// On GPUs nothing else compares messages. One sender at a time.
void Watch::compare_next_message() {
  for (uint32_t tried = 0; !comparing_ && tried < options_.rank_count; ++tried) {
    const uint32_t sender = next_sender_;
    next_sender_ = (next_sender_ + 1) % options_.rank_count;
    const MessageRecords* const messages = history_.messages(backend::Turn::Kind::kReceive, sender);
    if (messages == nullptr || messages->latest() == compared_messages_[sender]) continue;
    compared_messages_[sender] = messages->latest();
    compare_message({backend::Turn::Kind::kReceive, sender, messages->latest()});
  }
}

void Watch::compare_message(const backend::Turn& turn) {
  comparing_ = true;
  bootstrap_->ask(encode(question_about(turn)), base::time_in(kAnswerLimit), [this, turn](const Answers& answers) {
    comparing_ = false;
    if (!answers.ok()) return;
    const auto difference = describe_difference(reports_of(*answers), turn);
    if (!difference) return;
    found_ = true;
    fail_(Status(Code::kMismatch, *difference));
  });
}

void Watch::report_difference(const backend::Turn& turn) {
  comparing_ = found_ = true;
  bootstrap_->ask(encode(question_about(turn)), base::time_in(kAnswerLimit), [this, turn](const Answers& answers) {
    std::optional<std::string> text;
    if (answers.ok()) text = describe_difference(reports_of(*answers), turn);
    fail_(
        Status(Code::kMismatch, text.value_or(fmt::format("ranks made different calls up to call {}; which ones is no "
                                                          "longer known",
                                                          turn.number))));
  });
}

// Warnings.

void Watch::warn() {
  if (options_.warn == 0ns) return;
  const auto wait = waiting_.now();
  if (!wait) return;
  if (wait->since != warned_wait_) {
    warned_wait_ = wait->since;
    next_warning_ = options_.warn;
  }
  if (backend::Waiting::Clock::now() - wait->since < next_warning_) return;
  const auto level = std::exchange(next_warning_, 2 * next_warning_);
  bootstrap_->ask(encode(Question{}), base::time_in(kStateLimit),
                  [this, wait = *wait, level](const Answers& answers) { take_states(wait, level, answers); });
}

/// The lowest rank that waits as long writes the line.
void Watch::take_states(const backend::Waiting::Wait& wait, std::chrono::nanoseconds level,
                        const Answers& answers) const {
  std::string text;
  if (answers.ok()) {
    const std::vector<Report> reports = reports_of(*answers);
    const auto as_long = std::chrono::duration_cast<std::chrono::milliseconds>(std::max(level / 2, level - kNearby));
    for (uint32_t lower = 0; lower < options_.rank; ++lower) {
      const ToldWait& other = reports[lower].wait;
      if (other.waits != 0 && other.milliseconds >= static_cast<uint64_t>(as_long.count())) return;
    }
    if (reports[options_.rank].wait.waits == 0) return;  // it goes on
    text = describe_wait(reports, options_.rank);
  } else {
    const double waited = std::chrono::duration<double>(backend::Waiting::Clock::now() - wait.since).count();
    text = fmt::format("no progress for {:.0f} s: rank {} waits for rank {}, {}; the other ranks cannot be asked: {}",
                       waited, options_.rank, wait.peer, describe(history_.progress()), answers.status().text());
  }
  if (const std::string connections = options_.connections_with(wait.peer); !connections.empty()) {
    text += "; " + connections;
  }
  log::set_rank(static_cast<int>(options_.rank), static_cast<int>(options_.rank_count));
  log::warn("{}", text);
  log::set_rank(0, 0);
}

}  // namespace tutti::communicator
