// SPDX-License-Identifier: Apache-2.0
#include "tuner/selector.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "config/plan_names.h"
#include "plugin/loader.h"
#include "program/in_one_strand.h"
#include "program/lower_strands.h"
#include "program/passes/as_copies.h"
#include "transport/connection.h"

namespace tutti::tuner {
namespace {

tutti_str borrow(const std::string& text) {
  return {text.data(), text.size()};
}

uint64_t blocks_of(const Question& question, uint32_t ranks) {
  switch (question.collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return ranks;
    default:
      return 1;
  }
}

/// The cost of one message of send and receive. `channel_gbs`: GB/s that each channel has on the network, since each
/// channel has connections of its own.
tutti_algorithm_cost message_cost(uint32_t links, double channel_gbs) {
  tutti_algorithm_cost cost{};
  cost.struct_size = sizeof cost;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if ((links >> link & 1) == 0) continue;
    cost.hops[link] = 1;
    cost.wire[link] = 1;
  }
  cost.gbs[TUTTI_LINK_NETWORK] = channel_gbs;
  cost.memory = 1;
  return cost;
}

/// The field of a cost with a number that is negative or not finite; null: there is none.
const char* wrong_number(const tutti_algorithm_cost& cost) {
  const auto is_wrong = [](double number) { return !std::isfinite(number) || number < 0; };
  if (std::any_of(std::begin(cost.wire), std::end(cost.wire), is_wrong)) return "wire";
  if (std::any_of(std::begin(cost.gbs), std::end(cost.gbs), is_wrong)) return "gbs";
  if (std::any_of(std::begin(cost.machine_wire), std::end(cost.machine_wire), is_wrong)) return "machine_wire";
  return is_wrong(cost.memory) ? "memory" : nullptr;
}

std::string text_of(const std::vector<Verdict>& verdicts, const Choices& choices) {
  const std::vector<Network>& networks = choices.networks;
  std::string text;
  const double best_us = verdicts.empty() ? 0 : verdicts.front().decision.predicted_us;
  for (const Verdict& verdict : verdicts) {
    const Decision& decision = verdict.decision;
    if (!text.empty()) text += '\n';
    text += fmt::format("  {:<28} ", verdict.name);
    if (!verdict.excluded.empty()) {
      text += "excluded: " + verdict.excluded;
    } else if (&verdict == &verdicts.front()) {
      text += fmt::format("chosen: {:.2f} µs predicted, {} channel(s)", decision.predicted_us, decision.channels);
    } else {
      text += fmt::format("slower: {:.2f} µs predicted, {:.1f} times the chosen, {} channel(s)", decision.predicted_us,
                          best_us > 0 ? decision.predicted_us / best_us : 1.0, decision.channels);
    }
    const bool names_network = verdict.excluded.empty() && networks.size() > 1;
    if (names_network) text += fmt::format(", network '{}'", networks[decision.network].name);
    const auto inside = choices.network_inside_racks;
    if (names_network && inside) text += fmt::format(", inside racks '{}'", networks[*inside].name);
    if (!verdict.lists.empty()) text += fmt::format("; strands run as a list: {}", verdict.lists);
  }
  return text;
}

}  // namespace

void set_cost(const tutti_algorithm_cost& cost, tutti_candidate& view) {
  std::copy_n(cost.hops, TUTTI_LINK_COUNT, view.hops);
  std::copy_n(cost.messages, TUTTI_LINK_COUNT, view.messages);
  std::copy_n(cost.wire, TUTTI_LINK_COUNT, view.wire);
  std::copy_n(cost.gbs, TUTTI_LINK_COUNT, view.algorithm_gbs);
  view.memory = cost.memory;
  std::copy_n(cost.machine_messages, TUTTI_LINK_COUNT, view.machine_messages);
  std::copy_n(cost.machine_wire, TUTTI_LINK_COUNT, view.machine_wire);
}

Algorithm::Algorithm(const program::AlgorithmPlugin& plugin, program::Instance connected)
    : name(plugin.name),
      ops(plugin.ops),
      instance(std::move(connected)),
      channels(std::max(1u, ops->channel_count(instance.get()))) {
  tutti_str text{};
  uint64_t collectives = 0;
  for (uint32_t v = 0; ops->variant(plugin.self, v, &text, &collectives) == TUTTI_OK; ++v) {
    variants.push_back({std::string(text.data, text.size), collectives});
  }
}

std::string Selector::algorithm_name(const Decision& decision) const {
  return decision.algorithm == kNoAlgorithm ? "p2p" : choices_.algorithms[decision.algorithm].name;
}

std::string Selector::variant_name(const Decision& decision) const {
  if (decision.algorithm == kNoAlgorithm) return {};
  const auto& variants = choices_.algorithms[decision.algorithm].variants;
  return variants.size() > 1 ? variants[decision.variant].name : std::string();
}

std::vector<Selector::Candidate> Selector::list(const Question& question) const {
  std::vector<Candidate> candidates;
  const auto add = [&](uint32_t algorithm, uint32_t variant) {
    for (uint32_t protocol = 0; protocol < choices_.protocols.size(); ++protocol) {
      Candidate candidate;
      candidate.decision = {algorithm, variant, protocol, 1, 0};
      candidate.name = algorithm_name(candidate.decision);
      if (const std::string name = variant_name(candidate.decision); !name.empty()) candidate.name += "/" + name;
      candidate.name += " × " + choices_.protocols[protocol].name;
      candidates.push_back(std::move(candidate));
    }
  };
  if (question.collective == Collective::kSendRecv) {
    add(kNoAlgorithm, 0);
    return candidates;
  }
  for (uint32_t a = 0; a < choices_.algorithms.size(); ++a) {
    const auto& variants = choices_.algorithms[a].variants;
    for (uint32_t v = 0; v < variants.size(); ++v) add(a, v);
  }
  return candidates;
}

bool Selector::names(const std::string& named, const Decision& decision) const {
  const std::string algorithm = algorithm_name(decision);
  return named == algorithm || named == algorithm + "/" + variant_name(decision) ||
         config::names_plan_file(named, algorithm);
}

bool Selector::names_meant_file(const std::string& named, const Question& question) const {
  for (uint32_t a = 0; a < choices_.algorithms.size(); ++a) {
    const Algorithm& algorithm = choices_.algorithms[a];
    if (!algorithm.meant || !config::names_plan_file(named, algorithm.name)) continue;
    const bool offers = (algorithm.variants[0].collectives >> static_cast<uint32_t>(question.collective) & 1) != 0;
    if (offers && excluded_by_purpose(question, a).empty()) return true;
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
  if (decision.algorithm != kNoAlgorithm) {
    const auto& variant = choices_.algorithms[decision.algorithm].variants[decision.variant];
    if ((variant.collectives >> static_cast<uint32_t>(question.collective) & 1) == 0) {
      candidate.excluded = fmt::format("algorithm does not offer {}", to_string(question.collective));
      return;
    }
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
                  fmt::format("algorithm '{}' fails to give the cost of {}: {}; {}", candidate.name,
                              to_string(question.collective), plugin::take_reason(),
                              algorithm.meant ? "correct the plan file" : "take it out of plugins.algorithm"));
  }
  if (const char* const wrong = wrong_number(cost); wrong != nullptr) {
    return Status(Code::kInternal,
                  fmt::format("algorithm '{}' gives a cost of {} with a number in {} that is negative or not finite "
                              "(ALG-11); take it out of plugins.algorithm",
                              candidate.name, to_string(question.collective), wrong));
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

tutti_candidate Selector::view_of(const Decision& decision, const config::Rule* rule) const {
  const Protocol& protocol = choices_.protocols[decision.protocol];
  const tutti_protocol_properties& properties = protocol.properties;
  tutti_candidate view{};
  view.struct_size = sizeof view;
  view.max_channels = rule != nullptr && rule->channels ? std::max(1u, *rule->channels) : choices_.max_channels;
  if (properties.needs_registered != 0) view.max_channels = 1;
  view.channels = 1;
  view.needs_registered = properties.needs_registered;
  view.protocol = borrow(protocol.name);
  std::copy_n(properties.latency_us, TUTTI_LINK_COUNT, view.protocol_latency_us);
  std::copy_n(properties.efficiency, TUTTI_LINK_COUNT, view.protocol_efficiency);
  std::copy_n(properties.channel_gbs, TUTTI_LINK_COUNT, view.channel_gbs);
  std::copy_n(properties.channel_bytes, TUTTI_LINK_COUNT, view.channel_bytes);
  return view;
}

Result<std::vector<Selector::Candidate>> Selector::judge(const Question& question) const {
  std::vector<Candidate> candidates = list(question);
  const config::Rule* rule = matching_rule(question);
  for (Candidate& candidate : candidates) {
    const Decision& decision = candidate.decision;
    exclude(question, candidate);
    tutti_candidate& view = candidate.view;
    view = view_of(decision, rule);
    view.predicted_us = candidate.excluded.empty() ? 0 : -1;
    if (decision.algorithm == kNoAlgorithm) {
      candidate.cost = message_cost(choices_.links, channel_gbs(decision));
      set_cost(candidate.cost, view);
      continue;
    }
    const auto& algorithm = choices_.algorithms[decision.algorithm];
    view.max_channels = std::min(view.max_channels, algorithm.channels);
    view.algorithm = borrow(algorithm.name);
    view.variant = borrow(algorithm.variants[decision.variant].name);
    if (!candidate.excluded.empty()) continue;
    TUTTI_ASSIGN(candidate.excluded, excluded_by_cost(question, candidate));
    if (candidate.excluded.empty()) candidate.excluded = excluded_by_plans(question, candidate);
    if (candidate.excluded.empty()) candidate.lists = why_lists(question, candidate);
    // The algorithm knows the ports of the first network alone.
    double& gbs = candidate.cost.gbs[TUTTI_LINK_NETWORK];
    if (decision.network != 0) gbs = 0;
    if (gbs == 0 && choices_.device == TUTTI_DEVICE_CUDA) gbs = channel_gbs(decision);
    set_cost(candidate.cost, view);
    if (!candidate.excluded.empty()) view.predicted_us = -1;
  }
  TUTTI_TRY(ask_tuner(question, rule, candidates));
  return candidates;
}

/// The part of the network that a channel has if each channel has connections of its own. 0: there is no network.
double Selector::channel_gbs(const Decision& decision) const {
  if (choices_.networks.empty()) return 0;
  return choices_.networks[decision.network].gbs / std::max(choices_.max_channels, 1u);
}

/// The candidates of each network, with the figures of this network.
Status Selector::ask_tuner(const Question& question, const config::Rule* rule,
                           std::vector<Candidate>& candidates) const {
  for (uint32_t network = 0; network < std::max<size_t>(choices_.networks.size(), 1); ++network) {
    std::vector<Candidate*> of_network;
    for (Candidate& candidate : candidates) {
      if (candidate.decision.network == network) of_network.push_back(&candidate);
    }
    if (!of_network.empty()) TUTTI_TRY(ask_tuner(question, rule, of_network));
  }
  return {};
}

void* Selector::tuner_of(uint32_t network) const {
  void* const own = choices_.networks.empty() ? nullptr : choices_.networks[network].tuner_instance.get();
  return own != nullptr ? own : choices_.tuner_instance.get();
}

/// Candidates of one network. A tuner that declines the call excludes all of them.
Status Selector::ask_tuner(const Question& question, const config::Rule* rule,
                           std::span<Candidate* const> candidates) const {
  std::vector<tutti_candidate> views;
  views.reserve(candidates.size());
  std::vector<tutti_candidate*> pointers;
  pointers.reserve(candidates.size());
  for (const Candidate* candidate : candidates) pointers.push_back(&views.emplace_back(candidate->view));
  const uint64_t bytes = question.count * size_of(question.type);
  const tutti_call call{sizeof(tutti_call),
                        static_cast<uint32_t>(question.collective),
                        static_cast<uint32_t>(question.type),
                        static_cast<uint32_t>(question.op),
                        bytes,
                        blocks_of(question, choices_.ranks),
                        question.registered ? 1u : 0u,
                        0};
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code = choices_.tuner->choose(tuner_of(candidates.front()->decision.network), &call, pointers.data(),
                                              static_cast<uint32_t>(views.size()));
  const std::string why = code == TUTTI_OK ? std::string() : plugin::take_reason();
  if (code != TUTTI_OK && code != TUTTI_UNSUPPORTED) {
    return {Code::kInternal, fmt::format("tuner '{}' failed on {} of {} bytes: {}", choices_.tuner_name,
                                         to_string(question.collective), bytes, why)};
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = *candidates[i];
    if (!candidate.excluded.empty()) continue;
    if (code == TUTTI_UNSUPPORTED) {
      candidate.excluded = fmt::format("tuner '{}' declines the call: {}", choices_.tuner_name, why);
      continue;
    }
    candidate.decision.predicted_us = views[i].predicted_us;
    const bool ruled = rule != nullptr && rule->channels && !rule->forbids;
    candidate.decision.channels =
        ruled ? candidate.view.max_channels : std::clamp<uint32_t>(views[i].channels, 1, candidate.view.max_channels);
    if (views[i].predicted_us >= 0) continue;
    const tutti_str reason = views[i].reason;
    candidate.excluded = fmt::format("tuner '{}': {}", choices_.tuner_name,
                                     reason.size > 0 ? std::string_view(reason.data, reason.size) : "excluded");
  }
  return {};
}

std::optional<size_t> Selector::best(const std::vector<Candidate>& candidates) {
  std::optional<size_t> chosen;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (!candidates[i].excluded.empty()) continue;
    if (!chosen || candidates[i].decision.predicted_us < candidates[*chosen].decision.predicted_us) chosen = i;
  }
  return chosen;
}

Result<Decision> Selector::choose(const Question& question) const {
  TUTTI_ASSIGN(std::vector<Candidate> candidates, judge(question));
  const std::optional<size_t> chosen = best(candidates);
  if (!chosen) {
    TUTTI_TRY(network_excluded(question));
    // The reasons of the candidates that the settings name come first.
    std::ranges::stable_partition(candidates,
                                  [&](const Candidate& each) { return excluded_by_settings(question, each).empty(); });
    return Status(Code::kUnsupported,
                  fmt::format("nothing can run {} of {} × {}:\n{}", to_string(question.collective), question.count,
                              to_string(question.type), text_of(in_order(candidates), choices_)));
  }
  return candidates[*chosen].decision;
}

Result<std::vector<Verdict>> Selector::verdicts(const Question& question) const {
  TUTTI_ASSIGN(const std::vector<Candidate> candidates, judge(question));
  return in_order(candidates);
}

Result<std::string> Selector::explain(const Question& question) const {
  TUTTI_ASSIGN(const std::vector<Verdict> all, verdicts(question));
  return text_of(all, choices_);
}

std::vector<Verdict> Selector::in_order(const std::vector<Candidate>& candidates) {
  std::vector<Verdict> verdicts;
  verdicts.reserve(candidates.size());
  for (const Candidate& each : candidates) verdicts.push_back({each.decision, each.name, each.excluded, each.lists});
  const auto key = [](const Verdict& verdict) {
    return std::pair(verdict.excluded.empty() ? 0 : 1, verdict.decision.predicted_us);
  };
  std::ranges::stable_sort(verdicts, {}, key);  // of equal times, the first is the best (best())
  return verdicts;
}

}  // namespace tutti::tuner
