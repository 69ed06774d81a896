// SPDX-License-Identifier: Apache-2.0
#include "tools/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "config/suggest.h"

namespace tutti::tools {

CLI::Validator one_of(std::vector<std::string> names) {
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        const bool known = std::find(names.begin(), names.end(), text) != names.end();
        if (known) return std::string();
        return fmt::format("'{}' is none of {}{}", text, fmt::join(names, ", "), config::did_you_mean(text, names));
      },
      std::string());
}

namespace {

/// The error for a text that is no number of at least `least`.
std::string error_below(const std::string& text, double least) {
  double number = 0;
  if (CLI::detail::lexical_cast(text, number) && number >= least) return {};
  return fmt::format("'{}' is not allowed; write a number from {} on", text, least);
}

}  // namespace

const CLI::Validator kFromOne([](std::string& text) { return error_below(text, 1); }, std::string());
const CLI::Validator kFromZero([](std::string& text) { return error_below(text, 0); }, std::string());

const CLI::Validator kSize(
    [](std::string& text) {
      constexpr size_t kLongest = 15;  // the longest text that fits 64 bits
      const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
      const std::string unit = CLI::detail::to_lower(text.substr(digits));
      const size_t power = unit.empty() ? 0 : std::string("bkmg").find(unit.front());
      const bool known = unit.size() <= 1 || (power > 0 && (unit.substr(1) == "b" || unit.substr(1) == "ib"));
      if (digits == 0 || text.size() > kLongest || power > 3 || !known) {
        return fmt::format("'{}' is no size; write 8, 64K, 16M or 1G", text);
      }
      text = std::to_string(std::stoull(text.substr(0, digits)) << (10 * power));
      return std::string();
    },
    std::string());

}  // namespace tutti::tools
