// SPDX-License-Identifier: Apache-2.0
#include "tuner/selector.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugin/loader.h"

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
    const bool names_network = verdict.excluded.empty() && !networks.empty();
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

std::string Selector::name_of(const Decision& decision) const {
  const std::string variant = variant_name(decision);
  return fmt::format("{}{}{} × {}", algorithm_name(decision), variant.empty() ? "" : "/", variant,
                     choices_.protocols[decision.protocol].name);
}

bool Selector::offers(uint32_t algorithm, uint32_t variant, Collective collective) const {
  const uint64_t collectives = choices_.algorithms[algorithm].variants[variant].collectives;
  return (collectives >> static_cast<uint32_t>(collective) & 1) != 0;
}

std::vector<Selector::Candidate> Selector::list(const Question& question, Listed listed) const {
  std::vector<Candidate> candidates;
  const auto add = [&](uint32_t algorithm, uint32_t variant) {
    for (uint32_t protocol = 0; protocol < choices_.protocols.size(); ++protocol) {
      Candidate candidate;
      candidate.decision = {algorithm, variant, protocol, 1, 0};
      candidates.push_back(std::move(candidate));
    }
  };
  if (question.collective == Collective::kSendRecv) {
    add(kNoAlgorithm, 0);
    return candidates;
  }
  for (uint32_t a = 0; a < choices_.algorithms.size(); ++a) {
    const auto& variants = choices_.algorithms[a].variants;
    for (uint32_t v = 0; v < variants.size(); ++v) {
      if (listed == Listed::kAll || offers(a, v, question.collective)) add(a, v);
    }
  }
  return candidates;
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

Result<std::vector<Selector::Candidate>> Selector::judge(const Question& question, Listed listed) const {
  std::vector<Candidate> candidates = list(question, listed);
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
    if (candidate.excluded.empty()) {
      view.filled_chunks = filled_chunks(question, decision);
    } else {
      view.predicted_us = -1;
    }
  }
  TUTTI_TRY(ask_tuner(question, rule, candidates));
  return candidates;
}

/// Hosts round a chunk up to whole cache lines. 0: unknown, as on GPUs, which cut a block for each number of CTAs.
double Selector::filled_chunks(const Question& question, const Decision& decision) const {
  constexpr uint64_t kLineBytes = 64;  // tutti_work.chunk_elements
  if (choices_.on_gpu) return 0;
  const uint32_t chunks = plan_check_.answer(decision.algorithm, decision.variant, question.collective).chunks;
  const auto quotient_up = [](uint64_t a, uint64_t b) { return (a + b - 1) / b; };
  const uint64_t lines = std::max<uint64_t>(quotient_up(question.count * size_of(question.type), kLineBytes), 1);
  const uint64_t lines_of_chunk = quotient_up(lines, chunks);
  return static_cast<double>(quotient_up(lines, lines_of_chunk)) / chunks;
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
  TUTTI_ASSIGN(std::vector<Candidate> candidates, judge(question, Listed::kOffering));
  const std::optional<size_t> chosen = best(candidates);
  if (!chosen) {
    TUTTI_TRY(network_excluded(question));
    TUTTI_ASSIGN(candidates, judge(question, Listed::kAll));
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
  TUTTI_ASSIGN(const std::vector<Candidate> candidates, judge(question, Listed::kAll));
  return in_order(candidates);
}

Result<std::string> Selector::explain(const Question& question) const {
  TUTTI_ASSIGN(const std::vector<Verdict> all, verdicts(question));
  const bool any = std::ranges::any_of(all, [](const Verdict& verdict) { return verdict.excluded.empty(); });
  return (any ? "" : "  nothing can run this call:\n") + text_of(all, choices_);
}

std::vector<Verdict> Selector::in_order(const std::vector<Candidate>& candidates) const {
  std::vector<Verdict> verdicts;
  verdicts.reserve(candidates.size());
  for (const Candidate& each : candidates)
    verdicts.push_back({each.decision, name_of(each.decision), each.excluded, each.lists});
  const auto key = [](const Verdict& verdict) {
    return std::pair(verdict.excluded.empty() ? 0 : 1, verdict.decision.predicted_us);
  };
  std::ranges::stable_sort(verdicts, {}, key);  // of equal times, the first is the best (best())
  return verdicts;
}

}  // namespace tutti::tuner
