// SPDX-License-Identifier: Apache-2.0
#include "config/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>

namespace tutti::config {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};
// The longest name that fits comes first; the largest unit that divides a value writes it.
constexpr Unit kSizes[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"G", 1 << 30},
                           {"M", 1 << 20},   {"K", 1 << 10},   {"B", 1},         {"", 1}};
constexpr Unit kDurations[] = {{"ms", 1'000'000},        {"us", 1'000},       {"ns", 1}, {"m", 60'000'000'000},
                               {"h", 3'600'000'000'000}, {"s", 1'000'000'000}};

Status invalid(std::string text) {
  return {Code::kConfig, std::move(text)};
}

std::string_view trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

enum class Read { kOk, kMalformed, kTooLarge };

/// A decimal number without leading zeros.
Read parse_decimal(std::string_view text, int64_t& out) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (digits.empty() || (digits.size() > 1 && digits.front() == '0')) return Read::kMalformed;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (end != text.data() + text.size()) return Read::kMalformed;
  return error == std::errc()                      ? Read::kOk
         : error == std::errc::result_out_of_range ? Read::kTooLarge
                                                   : Read::kMalformed;
}

template <size_t N>
Read parse_units(std::string_view text, const Unit (&units)[N], int64_t& out) {
  const size_t digits = std::min(text.find_first_not_of("-0123456789"), text.size());
  const std::string_view name = trim(text.substr(digits));
  const auto* unit = std::find_if(std::begin(units), std::end(units), [&](const Unit& u) { return u.name == name; });
  if (unit == std::end(units)) return Read::kMalformed;
  const Read read = parse_decimal(text.substr(0, digits), out);
  if (read != Read::kOk) return read;
  return __builtin_mul_overflow(out, unit->factor, &out) ? Read::kTooLarge : Read::kOk;
}

template <size_t N>
std::string format_units(int64_t value, const Unit (&units)[N]) {
  const Unit* best = nullptr;
  for (const Unit& unit : units) {
    if (value % unit.factor == 0 && (best == nullptr || unit.factor > best->factor)) best = &unit;
  }
  return value == 0 ? fmt::format("0{}", units[N - 1].name) : fmt::format("{}{}", value / best->factor, best->name);
}

std::string format_number(Type type, int64_t value) {
  switch (type) {
    case Type::kBool:
      return value != 0 ? "true" : "false";
    case Type::kSize:
      return format_units(value, kSizes);
    case Type::kDuration:
      return format_units(value, kDurations);
    default:
      return std::to_string(value);
  }
}

std::string_view example(Type type) {
  switch (type) {
    case Type::kSize:
      return "a size such as 4096, 64KiB or 1M";
    case Type::kDuration:
      return "a duration such as 250ms, 10s or 1m";
    default:
      return "a decimal integer";
  }
}

std::string range(const Key& key) {
  const auto text = [&](int64_t value) { return format_number(key.type, value); };
  if (key.minimum == INT64_MIN) return fmt::format("at most {}", text(key.maximum));
  if (key.maximum == INT64_MAX) return fmt::format("at least {}", text(key.minimum));
  return fmt::format("{} to {}", text(key.minimum), text(key.maximum));
}

Result<Value> parse_number(const Key& key, std::string_view text) {
  Value value;
  const Read read = key.type == Type::kSize       ? parse_units(text, kSizes, value.integer)
                    : key.type == Type::kDuration ? parse_units(text, kDurations, value.integer)
                                                  : parse_decimal(text, value.integer);
  if (read == Read::kMalformed) return invalid(fmt::format("'{}' is not {}", text, example(key.type)));
  if (read == Read::kTooLarge || value.integer < key.minimum || value.integer > key.maximum) {
    return invalid(fmt::format("{} is out of range; allowed is {}", text, range(key)));
  }
  return value;
}

Result<Value> parse_text(const Key& key, std::string_view text) {
  const auto is_control = [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control))
    return invalid("a text must be one line of printable characters");
  if (text.empty() && key.minimum > 0) return invalid("must not be empty");
  Value value;
  value.text = text;
  return value;
}

}  // namespace

Result<std::vector<std::string>> parse_list(std::string_view text) {
  text = trim(text);
  if (text.starts_with('[') != text.ends_with(']'))
    return invalid(fmt::format("'{}' is not a list such as [a, b] or a,b", text));
  if (text.starts_with('[')) text = trim(text.substr(1, text.size() - 2));
  std::vector<std::string> items;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = trim(text.substr(0, comma));
    if (item.empty()) return invalid("a list has an empty item");
    TUTTI_TRY(parse_text({}, item).status());
    items.emplace_back(item);
    if (comma == std::string_view::npos) break;
    text = text.substr(comma + 1);
    if (trim(text).empty()) return invalid("a list has an empty item");
  }
  return items;
}

Result<Value> parse(const Key& key, std::string_view text) {
  Value value;
  switch (key.type) {
    case Type::kBool:
      if (text != "true" && text != "false") return invalid(fmt::format("'{}' is not one of: true, false", text));
      value.integer = text == "true" ? 1 : 0;
      return value;
    case Type::kChoice:
      if (std::find(key.allowed.begin(), key.allowed.end(), text) == key.allowed.end()) {
        return invalid(fmt::format("'{}' is not one of: {}", text, fmt::join(key.allowed, ", ")));
      }
      return parse_text(key, text);
    case Type::kText:
      return parse_text(key, text);
    case Type::kList: {
      TUTTI_ASSIGN(value.list, parse_list(text));
      return value;
    }
    case Type::kNames: {
      TUTTI_ASSIGN(value.list, parse_list(text));
      if (value.list.empty()) return invalid("must not be empty");
      return value;
    }
    default:
      return parse_number(key, text);
  }
}

std::string format(const Key& key, const Value& value) {
  switch (key.type) {
    case Type::kText:
    case Type::kChoice:
      return value.text;
    case Type::kNames:
      if (value.list.size() == 1) return value.list.front();
      [[fallthrough]];
    case Type::kList:
      return fmt::format("[{}]", fmt::join(value.list, ", "));
    default:
      return format_number(key.type, value.integer);
  }
}

}  // namespace tutti::config
