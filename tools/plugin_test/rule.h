// SPDX-License-Identifier: Apache-2.0
// The rules of plugin/network_rules.h with the code that tests them. `tutti plugin test` runs the rules.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "plugin/network_rules.h"

namespace tutti::tools::plugin_test {

class Side;

/// How the two sides of a rule run. A side has its own context of the plugin.
enum class Where : uint32_t { kOneProcess, kTwoProcesses, kTwoNamespaces };
inline constexpr uint32_t kWhereCount = 3;
std::string_view to_string(Where where);

struct Rule {
  std::string_view number;  ///< "NET-7"; texts and reports name it
  std::string_view name;    ///< for --rule
  std::string_view sentence;
  /// Both sides run it at the same time. Null: other rules find violations of this rule.
  void (*run)(Side& side) = nullptr;
  double seconds = 20;  ///< deadline of the rule
  /// The rule stops or kills the process of the second side.
  bool needs_processes = false;
};

/// The rule of a number, with its test.
constexpr Rule rule(uint32_t number, void (*run)(Side& side) = nullptr, double seconds = 20,
                    bool needs_processes = false) {
  const plugin::NetworkRule& text = plugin::network_rule(number);
  return {text.number, text.name, text.sentence, run, seconds, needs_processes};
}

/// The rules that any rule may find violated.
inline constexpr std::string_view kReturns = "NET-1";
inline constexpr std::string_view kThrows = "NET-2";
inline constexpr std::string_view kReasons = "NET-3";
inline constexpr std::string_view kCrashes = "NET-4";

/// The rules of each file, in the order of the table.
std::span<const Rule> general_rules();
std::span<const Rule> device_rules();
std::span<const Rule> connection_rules();
std::span<const Rule> message_rules();
std::span<const Rule> matching_rules();
std::span<const Rule> memory_rules();
std::span<const Rule> ending_rules();
std::span<const Rule> progress_rules();

/// Calls `visit` with each rule of the table.
template <class Visit>
void for_each_rule(Visit&& visit) {
  for (const auto group : {general_rules, device_rules, connection_rules, message_rules, matching_rules, memory_rules,
                           ending_rules, progress_rules}) {
    for (const Rule& rule : group()) visit(rule);
  }
}

/// The rule of a name or number; null: there is none.
const Rule* find_rule(std::string_view name);

}  // namespace tutti::tools::plugin_test
