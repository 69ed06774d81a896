// SPDX-License-Identifier: Apache-2.0
#include "config/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace tutti::config {
namespace {

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

/// Letters that are missing, too many, wrong or swapped with their neighbour (optimal string alignment).
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t wrong = same_letter(a[i - 1], b[j - 1]) ? 0 : 1;
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + wrong});
      const bool swapped = i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 200;  // a longer word is no typing error
  constexpr size_t kShort = 5;      // with two edits, a shorter word resembles words that it does not mean
  if (word.empty() || word.size() > kLongest) return {};
  const std::string as_end = std::string(".").append(word);  // "slots": a key without its section
  std::string best;
  const size_t most = word.size() < kShort ? 1 : std::max<size_t>(2, word.size() / 3);
  size_t least = most + 1;
  for (const std::string& candidate : known) {
    const size_t distance = candidate.ends_with(as_end) ? 1 : edits(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string best = nearest(word, known);
  return best.empty() ? std::string() : fmt::format("; did you mean '{}'?", best);
}

}  // namespace tutti::config
