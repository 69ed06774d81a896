// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tutti::tune {
namespace {

constexpr double kSlower = 1.05;  ///< by so much a step to more channels must lose to count
constexpr double kAsFast = 1.01;  ///< times the best: as good, where it takes fewer channels
constexpr double kBehind = 3;     ///< times the best: far from winning at the next size
constexpr double kFlat = 1.5;     ///< times the time at a smaller size: the bytes do not determine the time yet

}  // namespace

Series::Series(std::string collective, std::vector<check::Problem> problems)
    : collective_(std::move(collective)),
      problems_(std::move(problems)),
      marks_(problems_.size()),
      best_us_(problems_.size(), std::numeric_limits<double>::infinity()) {}

const Series::Mark* Series::find(size_t size, const Run& run) const {
  const auto mark = marks_[size].find(run);
  return mark == marks_[size].end() ? nullptr : &mark->second;
}

std::optional<double> Series::measured_us(size_t size, const Run& run) const {
  const Mark* mark = find(size, run);
  if (mark == nullptr || mark->verdict != Verdict::kMeasured) return std::nullopt;
  return mark->time_us;
}

double Series::ratio(size_t size, double time_us) const {
  return time_us / best_us_[size];
}

bool Series::worth(size_t size, const Run& run) {
  if (is_settled(size, run)) return false;
  const Verdict verdict = judge(size, run);
  if (verdict == Verdict::kMeasured) return true;
  marks_[size][run] = {verdict, 0};
  return false;
}

bool Series::is_settled(size_t size, const Run& run) const {
  const auto has_fewer = [&](const Run& other) {
    return other.candidate == run.candidate && other.channels <= run.channels;
  };
  return std::find(dropped_.begin(), dropped_.end(), run) != dropped_.end() ||
         std::any_of(dropped_from_.begin(), dropped_from_.end(), has_fewer) || has_enough_channels(size, run);
}

/// Looks for two steps in a row to more channels that lost.
bool Series::has_enough_channels(size_t size, const Run& run) const {
  std::vector<double> times_us;
  for (const auto& [other, mark] : marks_[size]) {  // ascending channels of one candidate are neighbours
    const bool fewer = other.candidate == run.candidate && other.channels < run.channels;
    if (fewer && mark.verdict == Verdict::kMeasured) times_us.push_back(mark.time_us);
  }
  // Two slower steps in a row decide, because no measurement follows them.
  for (size_t i = 2; i < times_us.size(); ++i) {
    if (times_us[i - 1] > times_us[i - 2] * kSlower && times_us[i] > times_us[i - 1] * kSlower) return true;
  }
  return false;
}

/// Judges a run by its last measurements. A run far behind sits out the next size while it catches up or its time stays
/// flat: a time of latencies alone says nothing about large sizes. Otherwise the run is out for good.
Series::Verdict Series::judge(size_t size, const Run& run) const {
  const Mark* before = size == 0 ? nullptr : find(size - 1, run);
  if (before == nullptr || before->verdict == Verdict::kPaused) return Verdict::kMeasured;
  if (before->verdict == Verdict::kBehind) return Verdict::kBehind;
  const double behind = ratio(size - 1, before->time_us);
  if (behind <= kBehind) return Verdict::kMeasured;
  for (size_t earlier = size - 1; earlier-- > 0;) {
    const Mark* mark = find(earlier, run);
    if (mark == nullptr || mark->verdict != Verdict::kMeasured) continue;
    const bool catches_up = behind < ratio(earlier, mark->time_us);
    const bool is_flat = before->time_us <= mark->time_us * kFlat;
    return catches_up || is_flat ? Verdict::kPaused : Verdict::kBehind;
  }
  return Verdict::kPaused;
}

void Series::add(size_t size, const Run& run, double time_us) {
  marks_[size][run] = {Verdict::kMeasured, time_us};
  best_us_[size] = std::min(best_us_[size], time_us);
}

Sample Series::thriftiest(size_t size, const Counts& counts) const {
  const std::vector<Sample> all = ranked(size, counts);
  Sample chosen = all.front();
  for (const Sample& sample : all) {
    if (sample.time_us > all.front().time_us * kAsFast) break;
    if (sample.run.channels < chosen.run.channels) chosen = sample;
  }
  return chosen;
}

std::vector<Sample> Series::ranked(size_t size, const Counts& counts) const {
  std::vector<Sample> samples;
  for (const auto& [run, mark] : marks_[size]) {
    if (counts && !counts(run)) continue;
    if (mark.verdict == Verdict::kMeasured) samples.push_back({run, mark.time_us});
  }
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.time_us < b.time_us; });
  return samples;
}

uint64_t Series::border(size_t from, const Run& small, size_t to, const Run& large) const {
  const auto least = static_cast<double>(check::bytes_of(problems_[from]));
  const auto most = static_cast<double>(check::bytes_of(problems_[to]));
  const std::optional<double> large_before = measured_us(from, large);
  const std::optional<double> small_after = measured_us(to, small);
  if (!large_before || !small_after) return static_cast<uint64_t>(std::sqrt(least * most));
  // By how much each is slower than the other where the other was taken.
  const double before = std::max(*large_before - measured_us(from, small).value_or(0), 0.0);
  const double after = std::max(*small_after - measured_us(to, large).value_or(0), 0.0);
  if (before + after <= 0) return static_cast<uint64_t>(std::sqrt(least * most));
  return static_cast<uint64_t>(std::min(least + (most - least) * before / (before + after), most - 1));
}

size_t Series::sample_count() const {
  size_t count = 0;
  for (size_t size = 0; size < marks_.size(); ++size) count += ranked(size).size();
  return count;
}

}  // namespace tutti::tune
