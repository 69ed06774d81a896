// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <thread>

#include "log/log.h"

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

/// The networks in the order of the configuration, but the networks that the rules exclude for every call last.
std::vector<const plugin::Registry::Network*> in_order(const plugin::Registry& registry,
                                                       const std::vector<config::Rule>& rules) {
  std::vector<const plugin::Registry::Network*> order;
  for (const auto& network : registry.networks()) order.push_back(&network);
  const auto rule = std::find_if(rules.begin(), rules.end(), config::matches_all);
  if (rule == rules.end()) return order;
  std::stable_partition(order.begin(), order.end(), [&](const plugin::Registry::Network* network) {
    return !config::excludes_network(*rule, network->name);
  });
  return order;
}

}  // namespace

uint32_t polling_threads(int64_t wanted, int64_t ranks_here) {
  constexpr int64_t kMost = 4;  // channels of a collective over a network
  if (wanted > 0) return static_cast<uint32_t>(wanted);
  const int64_t processors = std::thread::hardware_concurrency();
  return static_cast<uint32_t>(std::clamp(processors / std::max<int64_t>(ranks_here, 1) / 2, int64_t{1}, kMost));
}

Result<std::unique_ptr<Net>> open_network(const plugin::Registry& registry, const std::vector<config::Rule>& rules,
                                          const Net::Options& options, bootstrap::Bootstrap& bootstrap,
                                          base::Time deadline) {
  std::string refusals;
  for (const plugin::Registry::Network* network : in_order(registry, rules)) {
    auto net = open_here(*network, options);
    TUTTI_ASSIGN(const std::string refusal, first_refusal(net.status(), bootstrap, deadline));
    if (refusal.empty()) return net;
    log::info("network '{}' is passed over, since it does not work on all ranks: {}", network->name, refusal);
    refusals += fmt::format("{}'{}' does not work on {}", refusals.empty() ? "" : "; ", network->name, refusal);
  }
  return Status(Code::kUnsupported, fmt::format("no network works on all ranks: {}; name one that works in "
                                                "plugins.network or 'network'",
                                                refusals));
}

}  // namespace tutti::communicator
