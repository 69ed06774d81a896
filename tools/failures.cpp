// SPDX-License-Identifier: Apache-2.0
#include "tools/failures.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <new>

#include "base/fd.h"
#include "bootstrap/rank_list.h"
#include "log/log.h"

namespace tutti::tools {
namespace {

constexpr uint64_t kRankBits = 17;  // bits of a rank, plus 1

/// The text without ": rank 3" before its cause: ranks that are told of a failure name the rank that told them.
std::string cause_of(const std::string& text) {
  constexpr std::string_view kTeller = ": rank ";
  const size_t begin = text.find(kTeller);
  if (begin == std::string::npos) return text;
  const size_t end = text.find_first_not_of("0123456789", begin + kTeller.size());
  const bool tells = end != std::string::npos && end > begin + kTeller.size() && text.compare(end, 2, ": ") == 0;
  return tells ? text.substr(0, begin) + text.substr(end) : text;
}

}  // namespace

Failure failure_now(int rank, const Status& status) {
  return {rank, std::chrono::steady_clock::now(), status.to_string()};
}

std::vector<std::string> lines_of(std::vector<Failure> failures) {
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failure& a, const Failure& b) { return a.time < b.time; });
  std::vector<std::string> lines;
  std::vector<std::string> causes;
  for (const Failure& first : failures) {
    const std::string cause = cause_of(first.text);
    if (std::find(causes.begin(), causes.end(), cause) != causes.end()) continue;
    causes.push_back(cause);
    std::vector<int> ranks;
    std::string text;  // with the name of the rank that told it, if a rank was told
    for (const Failure& failure : failures) {
      if (cause_of(failure.text) != cause) continue;
      ranks.push_back(failure.rank);
      if (failure.text.size() > text.size()) text = failure.text;
    }
    std::sort(ranks.begin(), ranks.end());
    lines.push_back(fmt::format("{}: {}", bootstrap::rank_list(ranks), text));
  }
  return lines;
}

void print(std::vector<Failure> failures) {
  std::fflush(stdout);  // main() reports a failure of this
  for (const std::string& line : lines_of(std::move(failures))) fmt::print(stderr, "tutti: {}\n", line);
}

bool LoggedLines::claim(int rank, std::string_view text) {
  const uint64_t owner = static_cast<uint64_t>(rank) + 1;
  const uint64_t hash = std::hash<std::string_view>()(text);
  const uint64_t mine = hash << kRankBits | owner;
  for (size_t probe = 0; probe < lines_.size(); ++probe) {
    std::atomic<uint64_t>& line = lines_[(hash + probe) % lines_.size()];
    uint64_t found = 0;
    // Relaxed: the value is all that is shared.
    if (line.compare_exchange_strong(found, mine, std::memory_order_relaxed)) return true;
    if (found >> kRankBits == mine >> kRankBits) return found == mine;
  }
  return true;
}

Status log_once_per_job() {
  void* const memory = mmap(nullptr, sizeof(LoggedLines), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return base::system_error("cannot map memory for the log of all ranks; free some memory");
  auto* const lines = new (memory) LoggedLines;  // stays: threads may log while the process ends
  log::set_filter([lines](log::Level level, int rank, std::string_view text) {
    return level > log::Level::kWarn || rank < 0 || lines->claim(rank, text);
  });
  return {};
}

}  // namespace tutti::tools
