// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "communicator/setup/racks.h"
#include "log/log.h"
#include "plugin/network_names.h"
#include "plugin/search.h"

namespace tutti::communicator {
namespace {

using transport::Net;

Result<std::unique_ptr<Net>> open_here(const plugin::Registry::Network& network, Net::Options options) {
  if (network.plugin == nullptr) return network.why;
  options.ops = network.plugin->ops<tutti_network_ops>();
  options.plugin = network.plugin->self();
  options.capabilities = network.plugin->capabilities();
  options.name = network.name;
  options.last_failure = plugin::take_failure_text;
  return Net::create(std::move(options));
}

/// "rank 3: ..." of the first rank on which the network does not work; empty: it works on all. Collective.
Result<std::string> first_refusal(const Status& mine, bootstrap::Bootstrap& bootstrap, base::Time deadline) {
  const std::string text = mine.ok() ? std::string() : mine.to_string();
  TUTTI_ASSIGN(const auto all, bootstrap.all_gather(std::as_bytes(std::span(text)), deadline));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    return fmt::format("rank {}: {}", rank,
                       std::string_view(reinterpret_cast<const char*>(all[rank].data()), all[rank].size()));
  }
  return std::string();
}

std::vector<std::string> labels(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(plugin::label_of(plugin::Kind::kNetwork, name));
  return out;
}

/// `what`: the part of the configuration at `place` that needs the network.
Status check_named(const std::string& network, const std::vector<std::string>& names, const config::Config& config,
                   const std::string& place, std::string_view what) {
  if (std::find(names.begin(), names.end(), network) != names.end()) return {};
  return {Code::kConfig, fmt::format("{}: {} '{}', but 'network' ({}) does not name it; add it there", place, what,
                                     network, config.origin("network"))};
}

/// Of net.inside_rack.
Status check_inside_rack(const std::vector<std::string>& names, const config::Config& config) {
  const std::string network = network_inside_racks(config);
  if (network.empty()) return {};
  return check_named(network, names, config, config.place("net.inside_rack"), "net.inside_rack is");
}

/// Tries networks, each once, and keeps the answers.
class Candidates {
 public:
  Candidates(const NetworkWishes& wishes, const std::function<Result<std::string>(const std::string&)>& why_not)
      : wishes_(wishes), rules_(wishes.config->rules()), why_not_(why_not) {
    fixed_ = !plugin::fixed_networks(*wishes.config).empty();
    names_ = labels(plugin::possible_networks(*wishes.config));
    const auto rule = std::find_if(rules_.begin(), rules_.end(), config::matches_all);
    if (rule == rules_.end()) return;
    std::stable_partition(names_.begin(), names_.end(),
                          [&](const std::string& name) { return !config::excludes_network(*rule, name); });
  }

  Result<NetworkChoice> choose() {
    if (fixed_) {
      TUTTI_TRY(use_all());
    } else {
      TUTTI_TRY(use_needed());
    }
    TUTTI_TRY(use_inside_racks());
    return finish();
  }

 private:
  Result<bool> works(const std::string& name) {
    if (const auto known = refusals_.find(name); known != refusals_.end()) return known->second.empty();
    TUTTI_ASSIGN(std::string refusal, why_not_(name));
    const bool works = refusal.empty();
    refusals_.emplace(name, std::move(refusal));
    return works;
  }

  void use(const std::string& name) {
    if (std::find(used_.begin(), used_.end(), name) == used_.end()) used_.push_back(name);
  }

  Status use_all() {
    for (const std::string& name : names_) {
      TUTTI_ASSIGN(const bool works, this->works(name));
      if (works) use(name);
    }
    return {};
  }

  /// The first network that works and that the rule leaves. Null: without a rule.
  Status use_first(const config::Rule* rule) {
    for (const std::string& name : names_) {
      if (rule != nullptr && config::excludes_network(*rule, name)) continue;
      TUTTI_ASSIGN(const bool works, this->works(name));
      if (!works) continue;
      use(name);
      return {};
    }
    return {};
  }

  /// A call is of the first rule that matches it, or of no rule.
  Status use_needed() {
    bool always_ruled = false;
    for (const config::Rule& rule : rules_) {
      if (!config::matches_ranks(rule, wishes_.ranks, wishes_.nodes, wishes_.on_gpu)) continue;
      TUTTI_TRY(use_first(&rule));
      always_ruled = config::matches_all(rule);
      if (always_ruled) break;
    }
    if (always_ruled && !used_.empty()) return {};
    return use_first(nullptr);
  }

  /// The network of connections inside racks must work.
  Status use_inside_racks() {
    const std::string network = network_inside_racks(*wishes_.config);
    if (network.empty()) return {};
    TUTTI_TRY(check_inside_rack(names_, *wishes_.config));
    TUTTI_ASSIGN(const bool works, this->works(network));
    if (works) use(network);
    if (works || fixed_) return {};
    return {Code::kUnsupported, fmt::format("{}: net.inside_rack is '{}', but it does not work on {}; name a network "
                                            "that works on all ranks",
                                            wishes_.config->place("net.inside_rack"), network, refusals_.at(network))};
  }

  Result<NetworkChoice> finish() {
    std::string refusals;
    NetworkChoice choice;
    for (const std::string& name : names_) {
      const auto answer = refusals_.find(name);
      const bool fails = answer != refusals_.end() && !answer->second.empty();
      if (std::find(used_.begin(), used_.end(), name) != used_.end()) choice.used.push_back(name);
      if (!fails) continue;
      choice.unused.push_back({name, fmt::format("it does not work on {}", answer->second)});
      refusals += fmt::format("{}'{}' does not work on {}", refusals.empty() ? "" : "; ", name, answer->second);
    }
    if (choice.used.empty()) {
      return Status(Code::kUnsupported, fmt::format("no network works on all ranks: {}; name one that works in "
                                                    "plugins.network or 'network'",
                                                    refusals));
    }
    if (choice.used.size() > progress::Engine::kMostSources) {
      return Status(Code::kUnsupported,
                    fmt::format("a communicator uses up to {} networks, and 'network' and the rules "
                                "name {}; name fewer",
                                progress::Engine::kMostSources, choice.used.size()));
    }
    if (fixed_ && !refusals.empty()) {
      return Status(Code::kUnsupported, fmt::format("{}, but 'network' names it ({}); take it out there", refusals,
                                                    wishes_.config->origin("network")));
    }
    return choice;
  }

  const NetworkWishes& wishes_;
  const std::vector<config::Rule>& rules_;
  const std::function<Result<std::string>(const std::string&)>& why_not_;
  bool fixed_ = false;
  std::vector<std::string> names_;               // in the order of trials
  std::map<std::string, std::string> refusals_;  // by name; empty: it works
  std::vector<std::string> used_;
};

}  // namespace

uint32_t polling_threads(int64_t wanted, const Crowd& crowd) {
  constexpr int64_t kMost = 4;
  if (wanted > 0) return static_cast<uint32_t>(wanted);
  return static_cast<uint32_t>(std::clamp(int64_t{crowd.processors} / crowd.ranks / 2, int64_t{1}, kMost));
}

Status check_named_networks(const config::Config& config) {
  const std::vector<std::string> names = labels(plugin::fixed_networks(config));
  if (names.empty()) return {};
  TUTTI_TRY(check_inside_rack(names, config));
  for (const config::Rule& rule : config.rules()) {
    if (rule.forbids || rule.network.empty()) continue;
    const std::string network = plugin::label_of(plugin::Kind::kNetwork, rule.network);
    TUTTI_TRY(check_named(network, names, config, rule.network_place, "the rule chooses network"));
  }
  return {};
}

uint32_t networks_of_calls(const config::Config& config, size_t networks) {
  const std::vector<config::Rule>& rules = config.rules();
  const bool any =
      std::any_of(rules.begin(), rules.end(), [](const config::Rule& rule) { return !rule.network.empty(); });
  return any ? std::max(static_cast<uint32_t>(networks), 1u) : 1;
}

Result<NetworkChoice> choose_networks(const NetworkWishes& wishes,
                                      const std::function<Result<std::string>(const std::string&)>& why_not) {
  return Candidates(wishes, why_not).choose();
}

Result<Networks> open_networks(const plugin::Registry& registry, const NetworkWishes& wishes, Net::Options options,
                               bootstrap::Bootstrap& bootstrap, base::Time deadline) {
  TUTTI_ASSIGN(options.engine, progress::Engine::create({options.on_failure, options.polling_threads}));
  std::map<std::string, std::unique_ptr<Net>> nets;
  const auto why_not = [&](const std::string& name) -> Result<std::string> {
    const auto network = std::find_if(registry.networks().begin(), registry.networks().end(),
                                      [&](const plugin::Registry::Network& one) { return one.name == name; });
    if (network == registry.networks().end()) return std::string("any rank: it is not loaded (plugins.on_missing)");
    auto net = open_here(*network, options);
    TUTTI_ASSIGN(std::string refusal, first_refusal(net.status(), bootstrap, deadline));
    if (refusal.empty()) nets.emplace(name, *std::move(net));
    if (!refusal.empty())
      log::info("network '{}' is passed over, since it does not work on all ranks: {}", name, refusal);
    return refusal;
  };
  TUTTI_ASSIGN(NetworkChoice choice, choose_networks(wishes, why_not));
  Networks opened{{}, std::move(choice.unused)};
  for (const std::string& name : choice.used) opened.open.push_back(std::move(nets.at(name)));
  return opened;
}

void warn_of_one_route(const config::Config& config, const std::vector<std::vector<NetworkContact>>& ends) {
  const bool has_one = std::all_of(ends.begin(), ends.end(), [](const auto& of_rank) {
    return of_rank.size() == 1 && of_rank.front().endpoints.size() == 1;
  });
  if (!has_one) return;
  log::warn(
      "net.failover is true ({}), but the ranks have one network with one device each: a connection can be "
      "made again only by the device over which it broke; name further devices or networks",
      config.origin("net.failover"));
}

}  // namespace tutti::communicator
