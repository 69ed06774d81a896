// SPDX-License-Identifier: Apache-2.0
#include "transport/failover.h"

#include <fmt/format.h>

#include <algorithm>

#include "log/log.h"
#include "transport/net.h"

namespace tutti::transport {

uint32_t Failover::index_of(const Net& net) const {
  return static_cast<uint32_t>(std::find(nets_.begin(), nets_.end(), &net) - nets_.begin());
}

std::vector<Route> Failover::routes(const Net& home, const Key& key) const {
  std::vector<Route> routes{home.route(key)};
  const auto add = [&](const Net& net) {
    const auto& own = net.devices();
    const auto& theirs = net.endpoints_of(key.peer);
    for (size_t i = 0; i < std::max(own.size(), theirs.size()); ++i) {
      const Route route{&net, own[i % own.size()].index, theirs[i % theirs.size()].device};
      if (std::find(routes.begin(), routes.end(), route) == routes.end()) routes.push_back(route);
    }
  };
  add(home);
  for (const Net* net : nets_) {
    if (net != &home) add(*net);
  }
  return routes;
}

void Failover::report(const Key& key, const Route& from, const Route& to, uint64_t resent, const std::string& why) {
  const std::string text =
      fmt::format("fail-over: {} goes on by {}", transport::describe(from, key), transport::describe(to, key));
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = changes_[text]++ == 0;
    ++counts_.failovers;
    counts_.resent_messages += resent;
  }
  if (first) log::warn("{}; {}", text, why);
}

std::string Failover::describe() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [change, count] : changes_) {
    text += fmt::format("\n  {}: {} connection{}", change, count, count == 1 ? "" : "s");
  }
  return text;
}

Failover::Counts Failover::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string describe(const Route& route, const Key& key) {
  Key by = key;
  by.device = route.device;
  by.peer_device = route.peer_device;
  return fmt::format("network '{}', {}", route.net->options().name, route.net->ends(by, true));
}

Haste::Haste(const Failover& failover) : failover_(failover) {
  for (const Net* net : failover_.nets()) net->hurry(true);
}

Haste::~Haste() {
  for (const Net* net : failover_.nets()) net->hurry(false);
}

}  // namespace tutti::transport
