// SPDX-License-Identifier: Apache-2.0
#include "tools/failures.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <new>

#include "base/fd.h"
#include "bootstrap/rank_list.h"
#include "log/log.h"

namespace tutti::tools {
namespace {

constexpr uint64_t kRankBits = 17;  // of a rank, plus 1

}  // namespace

Failure failure_now(int rank, const Status& status) {
  return {rank, std::chrono::steady_clock::now(), status.to_string()};
}

std::vector<std::string> lines_of(std::vector<Failure> failures) {
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failure& a, const Failure& b) { return a.time < b.time; });
  std::vector<std::string> lines;
  std::vector<std::string> texts;
  for (const Failure& first : failures) {
    if (std::find(texts.begin(), texts.end(), first.text) != texts.end()) continue;
    texts.push_back(first.text);
    std::vector<int> ranks;
    for (const Failure& failure : failures) {
      if (failure.text == first.text) ranks.push_back(failure.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    lines.push_back(fmt::format("{}: {}", bootstrap::rank_list(ranks), first.text));
  }
  return lines;
}

void print(std::vector<Failure> failures) {
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
