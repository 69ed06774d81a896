// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/write.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace tutti::tune {
namespace {

constexpr size_t kShown = 3;             ///< the fastest candidates that a comment shows
constexpr uint32_t kChannelsOfHost = 1;  ///< channels of a job that does not set `channels`
constexpr uint32_t kChannelsOfGpu = 64;

/// "580.65.06", from the driver itself: its API has only the version of CUDA.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  }
  return "unknown";
}

uint32_t node_count(const Request& request, const Offer& offer) {
  const auto& session = request.bench.session;
  if (offer.over_network) return static_cast<uint32_t>(session.rank_count);
  std::set<std::string> hosts;
  for (int rank = 0; rank < session.rank_count; ++rank) hosts.insert(session.host(rank));
  return static_cast<uint32_t>(hosts.size());
}

/// A double-quoted scalar of YAML.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

/// The choice for one size, and the end of its range.
struct Choice {
  uint64_t max_bytes = UINT64_MAX;
  Sample best;
  std::string comments;
};

class Writer {
 public:
  Writer(const Request& request, const Offer& offer, const Findings& findings)
      : request_(request), offer_(offer), findings_(findings) {}

  std::string head(const Status& failure);
  std::string body() const;

 private:
  void say(const std::string& text) { head_ += "# " + text + '\n'; }
  void say_how();
  void say_what_is_missing(const Status& failure);
  std::string name(const Run& run) const {
    return fmt::format("{} ×{}", offer_.candidates[run.candidate].label(), run.channels);
  }
  bool is_registered(const Run& run) const { return offer_.candidates[run.candidate].registered; }
  /// Whether the measurement counts for calls with registered outputs, or for all remaining calls.
  bool counts(const Run& run, bool registered) const {
    return registered ? is_registered(run) || !offer_.candidates[run.candidate].differs_registered
                      : !is_registered(run);
  }
  /// For calls with registered outputs, or for all remaining calls.
  std::vector<Choice> choices(const Series& series, bool registered) const;
  std::string entries(const Series& series, bool registered) const;
  std::string entry(const Choice& choice, bool registered) const;
  uint32_t most_channels() const;

  const Request& request_;
  const Offer& offer_;
  const Findings& findings_;
  std::string head_;
};

void Writer::say_how() {
  const bench::Request& bench = request_.bench;
  say("Made by: " + request_.command);
  say(fmt::format("Measured: {} ranks as {}, {} sum, out of place; medians of {} batches{}; every result was checked",
                  bench.session.rank_count, bench.threads ? "threads" : "processes", to_string(bench.types.front()),
                  bench.batches, bench.graph ? ", replays of CUDA graphs" : ""));
  if (bench.device == bench::Device::kCuda) say("On: " + findings_.gpu + ", driver " + driver_version());
  size_t samples = 0;
  for (const Series& series : findings_.series) samples += series.sample_count();
  say(fmt::format("{} candidates (algorithm × protocol), {} with a number of channels, {} measurements",
                  offer_.candidates.size(), findings_.of_runs, samples));
  say("Follow it with settings.tuner.table.file: " + (request_.out.empty() ? "FILE" : request_.out));
  const bool cuda = bench.device == bench::Device::kCuda;
  if (const uint32_t most = most_channels(); most > (cuda ? kChannelsOfGpu : kChannelsOfHost)) {
    say(fmt::format("and channels: {}, which the largest entries need", most));
  }
  say("An entry holds up to max_bytes of the larger buffer; measured_us is that of the largest size it was best at.");
  say("Of those within 1 % of the fastest it is the one with the fewest channels.");
}

void Writer::say_what_is_missing(const Status& failure) {
  if (findings_.out_of_time) {
    say(fmt::format("INCOMPLETE: stopped after {} s (--limit), when {} of {} had had their turn", request_.limit_s,
                    findings_.runs, findings_.of_runs));
    const size_t done = findings_.runs / request_.channels.size();
    for (size_t i = done; i < offer_.candidates.size(); ++i) {
      say(fmt::format("  {}measured: {}", i == done && findings_.runs > 0 ? "not fully " : "not ",
                      offer_.candidates[i].label()));
    }
  }
  if (!failure.ok()) say(fmt::format("INCOMPLETE: {}", failure.to_string().substr(0, failure.to_string().find('\n'))));
  for (const std::string& wrong : findings_.wrong) say("EXCLUDED, wrong results: " + wrong);
  for (const std::string& failed : findings_.failed) say("not possible: " + failed);
}

std::string Writer::head(const Status& failure) {
  say_how();
  say_what_is_missing(failure);
  return head_ + fmt::format("tutti_table: 1\ntutti_version: {}\ngpu: {}\nranks: {}\nnodes: {}\n",
                             quoted(TUTTI_VERSION), quoted(findings_.gpu), request_.bench.session.rank_count,
                             node_count(request_, offer_));
}

uint32_t Writer::most_channels() const {
  uint32_t most = 1;
  for (const Series& series : findings_.series) {
    for (const bool registered : {false, true}) {
      for (const Choice& choice : choices(series, registered)) most = std::max(most, choice.best.run.channels);
    }
  }
  return most;
}

/// One per size that was measured, neighbours that choose the same merged.
std::vector<Choice> Writer::choices(const Series& series, bool registered) const {
  const Series::Counts counts = [&](const Run& run) { return Writer::counts(run, registered); };
  std::vector<Choice> merged;
  size_t before = 0;
  for (size_t size = 0; size < series.problems().size(); ++size) {
    const auto ranked = series.ranked(size, counts);
    if (ranked.empty()) continue;
    const uint64_t bytes = check::bytes_of(series.problems()[size]);
    const Sample chosen = series.thriftiest(size, counts);
    if (merged.empty() || merged.back().best.run != chosen.run) {
      if (!merged.empty()) {
        merged.back().max_bytes = series.border(before, merged.back().best.run, size, chosen.run);
      }
      merged.emplace_back();
    }
    before = size;
    merged.back().best = chosen;
    std::string& comments = merged.back().comments;
    comments += fmt::format("    # {} bytes:", bytes);
    for (size_t i = 0; i < std::min(kShown, ranked.size()); ++i) {
      comments += fmt::format("{} {} {:.2f} µs", i == 0 ? "" : ",", name(ranked[i].run), ranked[i].time_us);
    }
    comments += '\n';
  }
  return merged;
}

/// Entries for registered outputs only if the outputs make a difference.
std::string Writer::entries(const Series& series, bool registered) const {
  const auto list = choices(series, registered);
  const auto differs = [&](const Choice& choice) { return is_registered(choice.best.run); };
  if (registered && std::none_of(list.begin(), list.end(), differs)) return {};
  std::string text;
  for (const Choice& choice : list) text += choice.comments + entry(choice, registered);
  return text;
}

std::string Writer::entry(const Choice& choice, bool registered) const {
  const Candidate& candidate = offer_.candidates[choice.best.run.candidate];
  const std::string end = choice.max_bytes == UINT64_MAX ? "unlimited" : std::to_string(choice.max_bytes);
  const std::string variant = candidate.variant.empty() ? "" : ", variant: " + candidate.variant;
  return fmt::format("    - {{max_bytes: {}, algorithm: {}{}, protocol: {}, channels: {}, measured_us: {:.2f}{}}}\n",
                     end, candidate.algorithm, variant, candidate.protocol, choice.best.run.channels,
                     std::max(choice.best.time_us, 0.01), registered ? ", registered: true" : "");
}

std::string Writer::body() const {
  std::string text;
  for (const Series& series : findings_.series) {
    const std::string all = entries(series, false) + entries(series, true);
    if (!all.empty()) text += "  " + series.collective() + ":\n" + all;
  }
  return text.empty() ? "collectives: {}\n" : "collectives:\n" + text;
}

}  // namespace

std::string table_text(const Request& request, const Offer& offer, const Findings& findings, const Status& failure) {
  Writer writer(request, offer, findings);
  return writer.head(failure) + writer.body();
}

}  // namespace tutti::tune
