// SPDX-License-Identifier: Apache-2.0
// The reasons that exclude candidates: rules, settings, capabilities, costs and plans.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "config/plan_names.h"
#include "plugin/loader.h"
#include "program/in_one_strand.h"
#include "program/lower_strands.h"
#include "program/passes/as_copies.h"
#include "transport/connection.h"
#include "tuner/selector.h"

namespace tutti::tuner {
namespace {

/// The field of a cost with a number that is negative or not finite; null: there is none.
const char* wrong_number(const tutti_algorithm_cost& cost) {
  const auto is_wrong = [](double number) { return !std::isfinite(number) || number < 0; };
  if (std::any_of(std::begin(cost.wire), std::end(cost.wire), is_wrong)) return "wire";
  if (std::any_of(std::begin(cost.gbs), std::end(cost.gbs), is_wrong)) return "gbs";
  if (std::any_of(std::begin(cost.machine_wire), std::end(cost.machine_wire), is_wrong)) return "machine_wire";
  return is_wrong(cost.memory) ? "memory" : nullptr;
}

}  // namespace

bool Selector::names(const std::string& named, const Decision& decision) const {
  const std::string algorithm = algorithm_name(decision);
  return named == algorithm || named == algorithm + "/" + variant_name(decision) ||
         config::names_plan_file(named, algorithm);
}

bool Selector::names_meant_file(const std::string& named, const Question& question) const {
  for (uint32_t a = 0; a < choices_.algorithms.size(); ++a) {
    const Algorithm& algorithm = choices_.algorithms[a];
    if (!algorithm.meant || !config::names_plan_file(named, algorithm.name)) continue;
    if (offers(a, 0, question.collective) && excluded_by_purpose(question, a).empty()) return true;
  }
  return false;
}

/// The plans of a plugin are meant for all calls.
std::string Selector::excluded_by_purpose(const Question& question, uint32_t algorithm) const {
  const auto& meant = choices_.algorithms[algorithm].meant;
  if (!meant) return {};
  if (meant->ranks != choices_.ranks) {
    return fmt::format("the plan file is for {} ranks, and there are {}", meant->ranks, choices_.ranks);
  }
  const uint64_t bytes = question.count * size_of(question.type);
  if (bytes < meant->min_size) {
    return fmt::format("the plan file is for blocks from {} bytes, not {}", meant->min_size, bytes);
  }
  if (bytes > meant->max_size) {
    return fmt::format("the plan file is for blocks up to {} bytes, not {}", meant->max_size, bytes);
  }
  if (meant->data_types == 0 || (meant->data_types >> static_cast<uint32_t>(question.type) & 1) != 0) return {};
  std::vector<std::string_view> types;
  for (uint32_t type = 0; type < kDataTypeCount; ++type) {
    if ((meant->data_types >> type & 1) != 0) types.push_back(to_string(static_cast<DataType>(type)));
  }
  return fmt::format("the plan file is for {}, not {}", fmt::join(types, ", "), to_string(question.type));
}

/// Plan files choose only for the calls for which they are meant.
std::string Selector::excluded_by_settings(const Question& question, const Candidate& candidate) const {
  const std::string& wanted = config_.text("algorithm");
  const bool any = wanted == "auto" || candidate.decision.algorithm == kNoAlgorithm ||
                   (config::names_plan_files(wanted) && !names_meant_file(wanted, question));
  if (!any && !names(wanted, candidate.decision)) {
    return fmt::format("algorithm is set to '{}' ({})", wanted, config_.origin("algorithm"));
  }
  const std::string& protocol = config_.text("protocol");
  if (protocol != "auto" && protocol != choices_.protocols[candidate.decision.protocol].name) {
    return fmt::format("protocol is set to '{}' ({})", protocol, config_.origin("protocol"));
  }
  return {};
}

/// The first rule that matches decides; a rule that chooses excludes all else. A message has no algorithm: a rule on
/// one neither chooses nor forbids it for that. A rule on a network decides the network of the candidate: the candidate
/// is excluded only if no network is left.
std::string Selector::excluded_by_rules(const Question& question, Candidate& candidate) const {
  const config::Rule* rule = matching_rule(question);
  if (rule == nullptr) return {};
  const std::string& protocol = choices_.protocols[candidate.decision.protocol].name;
  const bool is_message = candidate.decision.algorithm == kNoAlgorithm;
  const bool names_algorithm =
      rule->algorithm.empty() || names(rule->algorithm, candidate.decision) || (is_message && !rule->forbids);
  bool named = names_algorithm && (rule->protocol.empty() || rule->protocol == protocol);
  if (named && !rule->network.empty()) {
    const auto network = network_by_rule(*rule);
    candidate.decision.network = network.value_or(0);
    named = network.has_value() != rule->forbids;
  }
  if (named != rule->forbids) return {};
  return fmt::format("{} by the rule at {}", rule->forbids ? "forbidden" : "not chosen", rule->place);
}

/// The first network in use that a rule on a network leaves; none: the rule leaves none.
std::optional<uint32_t> Selector::network_by_rule(const config::Rule& rule) const {
  for (uint32_t i = 0; i < choices_.networks.size(); ++i) {
    if ((choices_.networks[i].name == rule.network) != rule.forbids) return i;
  }
  return std::nullopt;
}

/// "'ib', 'socket'".
std::string Selector::networks_in_use() const {
  std::string text;
  for (const Network& network : choices_.networks)
    text += fmt::format("{}'{}'", text.empty() ? "" : ", ", network.name);
  return text;
}

/// A rule that excludes all networks in use leaves no candidate.
Status Selector::network_excluded(const Question& question) const {
  const config::Rule* rule = matching_rule(question);
  if (rule == nullptr || rule->network.empty()) return {};
  const auto leaves = [&](const Network& network) { return !config::excludes_network(*rule, network.name); };
  if (std::any_of(choices_.networks.begin(), choices_.networks.end(), leaves)) return {};
  const std::string call =
      fmt::format("{} of {} × {}", to_string(question.collective), question.count, to_string(question.type));
  if (!rule->forbids) {
    const auto unused = std::find_if(choices_.unused_networks.begin(), choices_.unused_networks.end(),
                                     [&](const UnusedNetwork& network) { return network.name == rule->network; });
    if (unused != choices_.unused_networks.end()) {
      return {Code::kConfig, fmt::format("{}: this rule chooses network '{}' for {}, but {}; change the rule",
                                         rule->network_place, rule->network, call, unused->why)};
    }
    return {Code::kConfig,
            fmt::format("{}: this rule chooses network '{}' for {}, but the communicator uses {}; add '{}' to "
                        "'network', or change the rule",
                        rule->network_place, rule->network, call, networks_in_use(), rule->network)};
  }
  return {Code::kConfig,
          fmt::format("{}: this rule forbids network '{}' for {}, but the communicator has no other network; narrow "
                      "'match' of the rule, or name another network in 'network'",
                      rule->network_place, rule->network, call)};
}

const config::Rule* Selector::matching_rule(const Question& question) const {
  const uint64_t bytes = question.count * size_of(question.type);
  const auto has_link = [&](const std::string& link) {
    return (choices_.links >> (link == "shm" ? TUTTI_LINK_SHM : TUTTI_LINK_NETWORK) & 1) != 0;
  };
  const bool uses_network = (choices_.links >> TUTTI_LINK_NETWORK & 1) != 0;
  for (const config::Rule& rule : config_.rules()) {
    if (!rule.network.empty() && !uses_network) continue;
    if (rule.collective.value_or(question.collective) != question.collective) continue;
    if (rule.data_type.value_or(question.type) != question.type) continue;
    if (bytes < rule.min_size || bytes > rule.max_size) continue;
    if (!config::matches_ranks(rule, choices_.ranks, choices_.nodes, choices_.on_gpu)) continue;
    if (!rule.link.empty() && !has_link(rule.link)) continue;
    const bool chooses_files = !rule.forbids && config::names_plan_files(rule.algorithm);
    if (chooses_files && !names_meant_file(rule.algorithm, question)) continue;
    return &rule;
  }
  return nullptr;
}

std::string Selector::excluded_by_device(const Protocol& protocol) const {
  if (choices_.device == 0 || (protocol.properties.devices & choices_.device) != 0) return {};
  if (choices_.device == TUTTI_DEVICE_HOST) return "protocol does not run on the host";
  const std::string& why = protocol.declined[TUTTI_LINK_P2P];
  return fmt::format("protocol does not run on GPUs{}{}", why.empty() ? "" : ": ", why);
}

Status Selector::check() const {
  const std::string& named = config_.text("protocol");
  for (const Protocol& protocol : choices_.protocols) {
    if (protocol.name != named) continue;
    const std::string excluded = excluded_by_device(protocol);
    if (excluded.empty()) continue;
    return {Code::kUnsupported, fmt::format("protocol is set to '{}' ({}), but this {}; set it to auto", named,
                                            config_.origin("protocol"), excluded)};
  }
  return {};
}

std::string Selector::excluded_by_ranks(const Candidate& candidate) const {
  const bool is_small = choices_.protocols[candidate.decision.protocol].properties.large_launches == 0;
  if (choices_.back_end == nullptr || !is_small) return {};
  return std::string(choices_.back_end->takes_small(choices_.ranks).text());
}

std::string Selector::excluded_by_links(const Candidate& candidate) const {
  static constexpr const char* kNames[TUTTI_LINK_COUNT] = {"shared memory", "the network", "peer to peer"};
  const auto& properties = choices_.protocols[candidate.decision.protocol].properties;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if ((choices_.links >> link & 1) != 0 && (properties.links >> link & 1) == 0) {
      const std::string& why = choices_.protocols[candidate.decision.protocol].declined[link];
      return fmt::format("protocol does not work over {}{}{}", kNames[link], why.empty() ? "" : ": ", why);
    }
  }
  return {};
}

std::string Selector::excluded_by_registration(const Question& question, const Candidate& candidate) const {
  if (choices_.protocols[candidate.decision.protocol].properties.needs_registered == 0) return {};
  if (candidate.decision.algorithm == kNoAlgorithm) return "protocol is for collectives only";
  return question.registered ? "" : "protocol needs registered buffers: Communicator::register_buffer";
}

void Selector::exclude(const Question& question, Candidate& candidate) const {
  const Decision& decision = candidate.decision;
  if (decision.algorithm != kNoAlgorithm && !offers(decision.algorithm, decision.variant, question.collective)) {
    candidate.excluded = fmt::format("algorithm does not offer {}", to_string(question.collective));
    return;
  }
  if (decision.algorithm != kNoAlgorithm) candidate.excluded = excluded_by_purpose(question, decision.algorithm);
  if (candidate.excluded.empty())
    candidate.excluded = excluded_by_device(choices_.protocols[candidate.decision.protocol]);
  if (candidate.excluded.empty()) candidate.excluded = excluded_by_ranks(candidate);
  if (candidate.excluded.empty()) candidate.excluded = excluded_by_links(candidate);
  if (candidate.excluded.empty()) candidate.excluded = excluded_by_registration(question, candidate);
  if (candidate.excluded.empty()) candidate.excluded = excluded_by_settings(question, candidate);
  if (candidate.excluded.empty()) candidate.excluded = excluded_by_rules(question, candidate);
}

Result<std::string> Selector::excluded_by_cost(const Question& question, Candidate& candidate) const {
  const Decision& decision = candidate.decision;
  const Algorithm& algorithm = choices_.algorithms[decision.algorithm];
  tutti_algorithm_cost& cost = candidate.cost;
  cost.struct_size = sizeof cost;
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code = algorithm.ops->cost(algorithm.instance.get(), static_cast<uint32_t>(question.collective),
                                           decision.variant, &cost);
  if (code == TUTTI_UNSUPPORTED) return "algorithm gives no cost for it: " + plugin::take_reason();
  if (code != TUTTI_OK) {
    return Status(code == TUTTI_AGAIN ? Code::kInternal : static_cast<Code>(code),
                  fmt::format("algorithm '{}' fails to give the cost of {}: {}; {}", name_of(decision),
                              to_string(question.collective), plugin::take_reason(),
                              algorithm.meant ? "correct the plan file" : "take it out of plugins.algorithm"));
  }
  if (const char* const wrong = wrong_number(cost); wrong != nullptr) {
    return Status(Code::kInternal,
                  fmt::format("algorithm '{}' gives a cost of {} with a number in {} that is negative or not finite "
                              "(ALG-11); take it out of plugins.algorithm",
                              name_of(decision), to_string(question.collective), wrong));
  }
  const uint32_t most = choices_.protocols[decision.protocol].properties.max_fan;
  if (cost.fan <= most) return std::string();
  return fmt::format("steps have up to {} peers, protocol takes {}", cost.fan, most);
}

/// Kernels of GPUs send each chunk as a message of its own.
std::string Selector::excluded_by_room(const Protocol& protocol, uint32_t message_chunks) const {
  if (choices_.device != TUTTI_DEVICE_HOST) return {};
  uint64_t payload_bytes = UINT64_MAX;
  uint32_t chunk_slots = UINT32_MAX;
  uint32_t messages = UINT32_MAX;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    const tutti_slot_layout& layout = protocol.layouts[link];
    if ((choices_.links >> link & 1) == 0 || layout.slot_count == 0) continue;
    payload_bytes = std::min<uint64_t>(payload_bytes, layout.slot_bytes);
    chunk_slots = std::min<uint32_t>(chunk_slots, layout.chunk_slots);
    messages = std::min(messages, transport::message_count(layout));
  }
  if (messages == UINT32_MAX) return {};
  const uint64_t slots = transport::slots_of_message(payload_bytes, chunk_slots, message_chunks);
  if (slots <= messages) return {};
  return fmt::format("a message of {} chunks takes {} slots, and a connection has {}", message_chunks, slots, messages);
}

/// Protocols that need registered buffers run plans as copies; all other protocols obey the back end's limits.
std::string Selector::excluded_by_plans(const Question& question, Candidate& candidate) const {
  const Decision& decision = candidate.decision;
  if (choices_.protocols[decision.protocol].properties.needs_registered == 0) {
    PlanCheck::Answer answer = plan_check_.answer(decision.algorithm, decision.variant, question.collective);
    const bool is_small = choices_.protocols[decision.protocol].properties.large_launches == 0;
    if (is_small && answer.why_not.empty()) answer.why_not = answer.why_not_small;
    return answer.why_not.empty() ? excluded_by_room(choices_.protocols[decision.protocol], answer.message_chunks)
                                  : answer.why_not;
  }
  return std::string(cost_of_copies(question, decision, candidate.cost).text());
}

std::string Selector::why_lists(const Question& question, const Candidate& candidate) const {
  const Decision& decision = candidate.decision;
  const tutti_protocol_properties& properties = choices_.protocols[decision.protocol].properties;
  if (choices_.back_end == nullptr || properties.needs_registered != 0) return {};
  PlanCheck::Answer answer = plan_check_.answer(decision.algorithm, decision.variant, question.collective);
  if (answer.most_strands > 1 && properties.strands == 0) return "the protocol runs no strands";
  if (!answer.why_lists.empty()) return std::move(answer.why_lists);
  return program::why_no_room(answer.most_strands, choices_.protocols[decision.protocol].strand_ctas);
}

/// Copies run one after another, straight from the input into the output. Fails (kUnsupported) if the plan consists of
/// more than copies. The choice of the root does not matter.
Status Selector::cost_of_copies(const Question& question, const Decision& decision, tutti_algorithm_cost& cost) const {
  const Algorithm& algorithm = choices_.algorithms[decision.algorithm];
  const tutti_plan_request request{
      sizeof(tutti_plan_request), static_cast<uint32_t>(question.collective), 0, 0, 0, decision.variant};
  TUTTI_ASSIGN(const std::vector<program::Plan> plans,
               program::collect_all(*algorithm.ops, algorithm.instance.get(), request, choices_.ranks));
  // A rank does not know whether its peers use their buffers in place, so both cases must be possible.
  const bool both = question.collective != Collective::kAllToAll;
  size_t most = 0;
  for (uint32_t rank = 0; rank < choices_.ranks; ++rank) {
    TUTTI_ASSIGN(const program::Copies copies, program::copies(plans, rank, false));
    if (both) TUTTI_TRY(program::copies(plans, rank, true).status());
    most = std::max(most, copies.list.size());
  }
  cost.hops[TUTTI_LINK_P2P] = cost.messages[TUTTI_LINK_P2P] = static_cast<uint32_t>(most);
  cost.memory = 0;
  return {};
}

}  // namespace tutti::tuner
