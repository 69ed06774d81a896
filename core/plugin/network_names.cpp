// SPDX-License-Identifier: Apache-2.0
#include "plugin/network_names.h"

#include <algorithm>

#include "plugin/search.h"

namespace tutti::plugin {

std::vector<std::string> fixed_networks(const config::Config& config) {
  const std::vector<std::string>& names = config.list("network");
  return names.front() == "auto" ? std::vector<std::string>() : names;
}

std::vector<std::string> possible_networks(const config::Config& config) {
  std::vector<std::string> names = fixed_networks(config);
  if (!names.empty()) return names;
  names = config.list("plugins.network");
  const auto add = [&](const std::string& named) {
    const std::string label = label_of(Kind::kNetwork, named);
    const auto is_it = [&](const std::string& name) { return label_of(Kind::kNetwork, name) == label; };
    if (std::none_of(names.begin(), names.end(), is_it)) names.push_back(named);
  };
  for (const config::Rule& rule : config.rules()) {
    if (!rule.forbids && !rule.network.empty()) add(rule.network);
  }
  if (const std::string& inside_rack = config.text("net.inside_rack"); !inside_rack.empty()) add(inside_rack);
  return names;
}

}  // namespace tutti::plugin
