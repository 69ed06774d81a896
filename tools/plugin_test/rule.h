// SPDX-License-Identifier: Apache-2.0
// The obligations of a plugin with the code that tests them, each written once. plugin/network_rules.h holds the texts
// of networks. `tutti plugin test` runs the rules. docs/plugin-guide.md holds the same table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "plugin/kind.h"
#include "plugin/network_rules.h"

namespace tutti::tools::plugin_test {

class Side;
class Trial;

/// How a rule runs. A network has two sides, each with its own context of the plugin. If a rule of algorithms,
/// protocols or tuners runs in two processes, the kit compares their answers.
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
  /// Networks: the rule stops or kills the process of the second side. Other kinds: two processes must answer alike.
  bool needs_processes = false;
};

using TrialTest = void (*)(Trial& trial);

/// A rule of algorithms, protocols or tuners.
struct TrialRule {
  Rule rule;
  /// Null: other rules find violations of this rule.
  TrialTest test = nullptr;
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
std::span<const Rule> device_memory_rules();
std::span<const Rule> context_rules();
std::span<const TrialRule> algorithm_rules();
std::span<const TrialRule> plan_rules();
std::span<const TrialRule> channel_rules();
std::span<const TrialRule> agreement_rules();
std::span<const TrialRule> protocol_rules();
std::span<const TrialRule> result_rules();
std::span<const TrialRule> wait_rules();
std::span<const TrialRule> direct_rules();
std::span<const TrialRule> gpu_rules();
std::span<const TrialRule> tuner_rules();

/// Calls `visit` with each rule of algorithms, protocols and tuners.
template <class Visit>
void for_each_trial_rule(Visit&& visit) {
  for (const auto group : {algorithm_rules, plan_rules, channel_rules, agreement_rules, protocol_rules, result_rules,
                           wait_rules, direct_rules, gpu_rules, tuner_rules}) {
    for (const TrialRule& rule : group()) visit(rule);
  }
}

/// Calls `visit` with each rule of the table.
template <class Visit>
void for_each_rule(Visit&& visit) {
  for (const auto group : {general_rules, device_rules, connection_rules, message_rules, matching_rules, memory_rules,
                           ending_rules, progress_rules, device_memory_rules, context_rules}) {
    for (const Rule& rule : group()) visit(rule);
  }
  for_each_trial_rule([&](const TrialRule& one) { visit(one.rule); });
}

/// The rule of networks of a name, or the rule of a number; null: there is none.
const Rule* find_rule(std::string_view name);
/// The rule of a kind by name or number; null: there is none.
const Rule* find_rule(plugin::Kind kind, std::string_view name);
/// The code that tests a rule of algorithms, protocols or tuners; null: there is none.
TrialTest test_of(const Rule& rule);
/// "NET-", "ALG-", "PRO-", "TUN-".
std::string_view prefix(plugin::Kind kind);

}  // namespace tutti::tools::plugin_test
