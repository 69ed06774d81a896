// SPDX-License-Identifier: Apache-2.0
// The choice of the networks of a communicator.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "communicator/setup/contact.h"
#include "communicator/setup/waits.h"
#include "plugin/registry.h"
#include "transport/net.h"
#include "tuner/selector.h"

namespace tutti::communicator {

/// Threads that poll for a rank's GPU: `wanted`, the value of net.polling_threads, or if 0 half of the rank's share of
/// the processors of `crowd`.
uint32_t polling_threads(int64_t wanted, const Crowd& crowd);

/// The facts that decide which networks a communicator uses.
struct NetworkWishes {
  const config::Config* config = nullptr;
  uint32_t ranks = 1;
  uint32_t nodes = 1;
  bool on_gpu = false;  ///< whether the ranks are on GPUs
};

/// The networks of a communicator, in order of preference.
struct NetworkChoice {
  std::vector<std::string> used;
  std::vector<tuner::UnusedNetwork> unused;  ///< no call uses them; named by the configuration, with the reasons
};

/// Chooses networks. Networks that `network` names are all used. If it is auto, these are used: the first network that
/// works, and for each rule that excludes it, the first network that works and that the rule leaves. A network that a
/// rule without `match` excludes is tried last. `why_not(name)`: why a network does not work on all ranks; empty: it
/// works. The failure names the reason for each network.
Result<NetworkChoice> choose_networks(const NetworkWishes& wishes,
                                      const std::function<Result<std::string>(const std::string&)>& why_not);

/// Checks that the setting `network` names the network of `net.inside_rack` and the networks that rules choose, unless
/// it is auto. kConfig, with the place of the name. Any thread.
Status check_named_networks(const config::Config& config);

/// How many of `networks` calls may use, from the first on: one if no rule names a network. At least one. Any thread.
uint32_t networks_of_calls(const config::Config& config, size_t networks);

/// The networks of a communicator, opened.
struct Networks {
  std::vector<std::unique_ptr<transport::Net>> open;  ///< in order of preference, with one engine
  std::vector<tuner::UnusedNetwork> unused;
};

/// Warns if a connection that breaks has no second route. With fail-over. `ends`: by rank, then by network.
void warn_of_one_route(const config::Config& config, const std::vector<std::vector<NetworkContact>>& ends);

/// Opens the networks that choose_networks() chooses. Collective: the ranks have agreed on the configuration. The call
/// sets the options that depend on the plugin, and the engine. The log at info names each network that is passed over,
/// with the reason. A failure is the same on all ranks.
Result<Networks> open_networks(const plugin::Registry& registry, const NetworkWishes& wishes,
                               transport::Net::Options options, bootstrap::Bootstrap& bootstrap, base::Time deadline);

}  // namespace tutti::communicator
