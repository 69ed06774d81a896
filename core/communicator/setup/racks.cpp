// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/racks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "plugin/search.h"

namespace tutti::communicator {
namespace {

constexpr const char* kRacks = "net.racks";
constexpr const char* kNetwork = "net.inside_rack";

/// An item of net.racks.
struct Rack {
  std::string name;
  std::vector<std::string> patterns;
  std::string place;

  bool holds(const std::string& host) const {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return fnmatch(pattern.c_str(), host.c_str(), 0) == 0; });
  }
};

Result<Rack> read_rack(const std::string& item, const std::string& place) {
  const size_t equals = item.find('=');
  Rack rack{item.substr(0, equals), {}, place};
  std::istringstream patterns(equals == std::string::npos ? std::string() : item.substr(equals + 1));
  for (std::string pattern; patterns >> pattern;) rack.patterns.push_back(pattern);
  if (!rack.name.empty() && !rack.patterns.empty()) return rack;
  return Status(Code::kConfig, fmt::format("{}: {}: '{}' is no rack; write NAME=PATTERN PATTERN with patterns of names "
                                           "of hosts, such as 'left=node1 node2*'",
                                           place, kRacks, item));
}

Result<std::vector<Rack>> read_racks(const config::Config& config) {
  std::vector<Rack> racks;
  const std::vector<std::string>& items = config.list(kRacks);
  for (size_t i = 0; i < items.size(); ++i) {
    TUTTI_ASSIGN(Rack rack, read_rack(items[i], config.item_place(kRacks, i)));
    const auto same =
        std::find_if(racks.begin(), racks.end(), [&](const Rack& other) { return other.name == rack.name; });
    if (same != racks.end()) {
      return Status(Code::kConfig, fmt::format("{}: {}: a rack '{}' stands before ({}); give each rack a name of its "
                                               "own, or join the patterns",
                                               rack.place, kRacks, rack.name, same->place));
    }
    racks.push_back(std::move(rack));
  }
  return racks;
}

/// The rack of a host; nothing: no rack holds it.
Result<std::optional<size_t>> rack_of(const std::string& host, const std::vector<Rack>& racks) {
  std::optional<size_t> found;
  for (size_t i = 0; i < racks.size(); ++i) {
    if (!racks[i].holds(host)) continue;
    if (found) {
      return Status(Code::kConfig, fmt::format("{}: {}: the racks '{}' and '{}' both hold host '{}'; let the patterns "
                                               "of one rack match it",
                                               racks[i].place, kRacks, racks[*found].name, racks[i].name, host));
    }
    found = i;
  }
  return found;
}

Status check_use(const config::Config& config, const std::vector<Rack>& racks) {
  const std::string& network = config.text(kNetwork);
  if (network.empty() || !racks.empty()) return {};
  return {Code::kConfig, fmt::format("{}: {} is '{}', but net.racks names no rack; name racks there, or leave "
                                     "net.inside_rack out",
                                     config.place(kNetwork), kNetwork, network)};
}

}  // namespace

std::string network_inside_racks(const config::Config& config) {
  const std::string& named = config.text(kNetwork);
  return named.empty() ? std::string() : plugin::label_of(plugin::Kind::kNetwork, named);
}

Status check_racks(const config::Config& config) {
  TUTTI_ASSIGN(const std::vector<Rack> racks, read_racks(config));
  return check_use(config, racks);
}

Result<Racks> Racks::read(const config::Config& config, const std::vector<std::string>& hosts) {
  TUTTI_ASSIGN(const std::vector<Rack> racks, read_racks(config));
  TUTTI_TRY(check_use(config, racks));
  Racks read;
  read.network_ = network_inside_racks(config);
  read.hosts_ = hosts;
  for (const Rack& rack : racks) read.names_.push_back(rack.name);
  for (const std::string& host : hosts) {
    TUTTI_ASSIGN(const std::optional<size_t> rack, rack_of(host, racks));
    read.rack_of_rank_.push_back(rack);
  }
  return read;
}

std::optional<uint32_t> Racks::network(const std::vector<tuner::Network>& networks) const {
  const auto inside = std::find_if(networks.begin(), networks.end(),
                                   [&](const tuner::Network& network) { return network.name == network_; });
  if (inside == networks.end()) return std::nullopt;
  std::vector<const std::string*> first(names_.size());  // host of each rack
  for (size_t rank = 0; rank < hosts_.size(); ++rank) {
    if (!rack_of_rank_[rank]) continue;
    const std::string*& host = first[*rack_of_rank_[rank]];
    if (host == nullptr) host = &hosts_[rank];
    if (*host != hosts_[rank]) return static_cast<uint32_t>(inside - networks.begin());
  }
  return std::nullopt;
}

transport::Paths Racks::paths(uint32_t rank, const std::vector<tuner::Network>& networks) const {
  transport::Paths paths(hosts_.size());
  const auto inside = network(networks);
  for (uint32_t peer = 0; peer < paths.size(); ++peer) {
    if (share(rank, peer)) paths[peer] = inside;
  }
  return paths;
}

std::string Racks::warning() const {
  const auto has_rack = [](const std::optional<size_t>& rack) { return rack.has_value(); };
  if (network_.empty() || std::ranges::any_of(rack_of_rank_, has_rack)) return {};
  const std::set<std::string> hosts(hosts_.begin(), hosts_.end());
  if (hosts.size() < 2) return {};
  return fmt::format("{} is '{}' and has no effect: no rack of {} holds one of the hosts {}; correct the patterns",
                     kNetwork, network_, kRacks, fmt::join(hosts, ", "));
}

std::string Racks::describe() const {
  std::string text;
  for (size_t rack = 0; rack < names_.size(); ++rack) {
    std::vector<std::string> hosts;
    for (size_t rank = 0; rank < hosts_.size(); ++rank) {
      const bool is_new = std::find(hosts.begin(), hosts.end(), hosts_[rank]) == hosts.end();
      if (rack_of_rank_[rank] == rack && is_new) hosts.push_back(hosts_[rank]);
    }
    if (hosts.empty()) continue;
    text += fmt::format("{}rack '{}' (hosts {})", text.empty() ? "" : "; ", names_[rack], fmt::join(hosts, ", "));
  }
  return text;
}

}  // namespace tutti::communicator
