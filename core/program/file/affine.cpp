// SPDX-License-Identifier: Apache-2.0
#include "program/file/affine.h"

#include <fmt/format.h>

#include <charconv>

namespace tutti::program {
namespace {

/// Takes digits from the beginning of `text`.
std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return {};
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

void skip_spaces(std::string_view& text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
}

}  // namespace

std::optional<Affine> parse_affine(std::string_view text) {
  const auto first = take_number(text);
  if (!first) return {};
  skip_spaces(text);
  if (text.empty()) return Affine{*first, 0};
  if (text[0] != '+' && text[0] != '-') return {};
  const bool falls = text[0] == '-';
  text.remove_prefix(1);
  skip_spaces(text);
  const bool counted = !text.starts_with('k');
  const auto amount = counted ? take_number(text) : std::optional<uint32_t>(1);
  if (!amount || text != "k") return {};
  return Affine{*first, falls ? -int64_t{*amount} : int64_t{*amount}};
}

std::string affine_text(uint32_t first, uint32_t growth, uint32_t modulus) {
  if (growth == 0) return fmt::format("{}", first);
  const bool falls = growth > modulus / 2;
  const uint32_t amount = falls ? modulus - growth : growth;
  return fmt::format("{} {} {}k", first, falls ? '-' : '+', amount == 1 ? "" : fmt::format("{}", amount));
}

}  // namespace tutti::program
