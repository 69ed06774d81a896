// SPDX-License-Identifier: Apache-2.0
// One attempt of the search: as many channels of a given speed as fit under given conditions.
#pragma once

#include <tuple>

#include "tutti/sdk/detail/machine.h"
#include "tutti/sdk/graph.h"

namespace tutti::sdk::detail {

struct Conditions {
  uint32_t pattern = TUTTI_PATTERN_RING;
  double gbs = 0;  ///< bandwidth of a channel
  uint32_t intra_type = TUTTI_PATH_SYS;
  uint32_t inter_type = TUTTI_PATH_SYS;
  bool same_channels = true;
  bool cross_nic = false;
};

/// A channel by numbers of Machine.
struct Route {
  std::vector<uint32_t> devices;
  uint32_t net_in = TUTTI_NO_NET;
  uint32_t net_out = TUTTI_NO_NET;
};

/// Depth-first search over channels and, in each channel, over devices. It takes the bandwidth of links on the way down
/// and gives it back on the way up. It first tries each channel with the order of the previous channel, and the first
/// channel with the order of device numbers (PCI order). Then it sorts candidates by the bandwidth that their path has
/// left. The search ends when it reaches the goal, when the steps are used up, or after `patience` steps without a
/// further channel. Equal arguments give equal routes.
class Finder {
 public:
  Finder(const Machine& machine, const Conditions& conditions, uint32_t goal, uint64_t steps, uint64_t patience)
      : machine_(machine),
        conditions_(conditions),
        goal_(goal),
        steps_(steps),
        patience_(patience),
        give_up_at_(steps > patience ? steps - patience : 0),
        ledger_(machine.system()),
        used_(machine.device_count()),
        entries_(machine.device_count()),
        net_uses_(machine.net_count()),
        net_exits_(machine.net_count()),
        candidates_(size_t{goal} * machine.device_count()) {}

  std::vector<Route> run() {
    next_channel();
    return best_;
  }
  uint64_t steps_left() const { return steps_; }

 private:
  /// (wanted last, bandwidth left, hops, distance), device
  using Candidate = std::pair<std::tuple<bool, double, uint32_t, uint32_t>, uint32_t>;

  bool is_ring() const { return conditions_.pattern == TUTTI_PATTERN_RING; }
  bool stopped() const { return best_.size() >= goal_ || steps_ <= give_up_at_; }

  void next_channel() {
    if (routes_.size() > best_.size()) {
      best_ = routes_;
      give_up_at_ = steps_ > patience_ ? steps_ - patience_ : 0;
    }
    if (stopped()) return;
    if (machine_.net_count() > 0) {
      for (const uint32_t net : nets_by_use()) {
        enter(net);
        if (stopped()) return;
      }
    } else {
      start_anywhere();
    }
  }

  /// Without a network a ring may start at any device; a chain's ends matter.
  void start_anywhere() {
    const uint32_t count = machine_.device_count();
    const uint32_t first = routes_.empty() ? 0 : routes_.back().devices.front();
    follow(first);
    if (conditions_.same_channels && !routes_.empty()) return;
    const uint32_t starts = is_ring() ? 1 : count;
    for (uint32_t i = 0; i < starts && !stopped(); ++i) start_free((first + i) % count);
  }

  /// A channel that comes in by `net`, at the device closest to it that takes it.
  void enter(uint32_t net) {
    if (net_uses_[net] == machine_.max_channels(net)) return;
    route_.net_in = net;
    for (const uint32_t device : devices_close_to(net)) {
      const tutti_system_path& path = machine_.into(net, device);
      if (path.type > conditions_.inter_type || !ledger_.take(path, conditions_.gbs)) continue;
      ++entries_[device];
      ++net_uses_[net];
      follow(device);
      if (!stopped() && (routes_.empty() || !conditions_.same_channels)) start_free(device);
      --net_uses_[net];
      --entries_[device];
      ledger_.give(path, conditions_.gbs);
      if (stopped()) return;
    }
  }

  /// The order of the channel before (for the first: PCI order), turned so that it begins at `first`.
  void follow(uint32_t first) {
    std::vector<uint32_t> order(machine_.device_count());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = routes_.empty() ? i : routes_.back().devices[i];
    std::rotate(order.begin(), std::find(order.begin(), order.end(), first), order.end());
    forced_ = &order;
    start(first);
    forced_ = nullptr;
  }
  void start_free(uint32_t first) {
    forced_ = nullptr;
    start(first);
  }

  void start(uint32_t first) {
    route_.devices.clear();
    if (step_onto(first)) {
      extend();
      step_off();
    }
  }

  /// Adds a device at the end of the route. A tree's network stands at its first two devices.
  bool step_onto(uint32_t device) {
    const auto place = static_cast<uint32_t>(route_.devices.size());
    const double share = network_share(place);
    if (share > 0) {
      const tutti_system_path& path = machine_.out_of(device, route_.net_in);
      if (path.type > conditions_.inter_type || !ledger_.take(path, share)) return false;
    }
    used_[device] = true;
    route_.devices.push_back(device);
    return true;
  }
  void step_off() {
    const uint32_t device = route_.devices.back();
    route_.devices.pop_back();
    used_[device] = false;
    const double share = network_share(static_cast<uint32_t>(route_.devices.size()));
    if (share > 0) ledger_.give(machine_.out_of(device, route_.net_in), share);
  }

  /// The share of a stream that the device at `place` of a tree's chain sends to the network.
  double network_share(uint32_t place) const {
    if (is_ring() || machine_.net_count() == 0) return 0;
    return tree_share(conditions_.pattern, place, machine_.device_count()) * conditions_.gbs;
  }

 public:
  /// The part of a tree channel's outgoing traffic that the device at `place` of the chain sends.
  static double tree_share(uint32_t pattern, uint32_t place, uint32_t devices) {
    const uint32_t last = devices > 1 ? 1 : 0;  // alone, the first device serves all
    if (pattern == TUTTI_PATTERN_BALANCED_TREE && last == 1) return place <= 1 ? 0.5 : 0;
    return place == (pattern == TUTTI_PATTERN_SPLIT_TREE ? last : 0) ? 1 : 0;
  }

 private:
  void extend() {
    if (stopped()) return;
    --steps_;
    if (route_.devices.size() == machine_.device_count()) return close();
    const uint32_t at = route_.devices.back();
    if (forced_ != nullptr) return advance(at, (*forced_)[route_.devices.size()]);
    for (const Candidate& candidate : sort_candidates(at)) {
      advance(at, candidate.second);
      if (stopped()) return;
    }
  }

  void advance(uint32_t at, uint32_t next) {
    const tutti_system_path& path = machine_.between(at, next);
    if (path.type > conditions_.intra_type || !ledger_.take(path, conditions_.gbs)) return;
    if (step_onto(next)) {
      extend();
      step_off();
    }
    ledger_.give(path, conditions_.gbs);
  }

  /// All devices are on the route: back to the start, or out to the network.
  void close() {
    const uint32_t last = route_.devices.back();
    if (!is_ring() || (machine_.device_count() == 1 && machine_.net_count() == 0)) {
      route_.net_out = route_.net_in;
      return commit();
    }
    if (machine_.net_count() == 0) {
      const tutti_system_path& path = machine_.between(last, route_.devices.front());
      if (path.type > conditions_.intra_type || !ledger_.take(path, conditions_.gbs)) return;
      commit();
      return ledger_.give(path, conditions_.gbs);
    }
    for (const uint32_t net : exits(last)) {
      const tutti_system_path& path = machine_.out_of(last, net);
      if (net_exits_[net] == machine_.max_channels(net) || path.type > conditions_.inter_type) continue;
      if (!ledger_.take(path, conditions_.gbs)) continue;
      route_.net_out = net;
      ++net_exits_[net];
      commit();
      --net_exits_[net];
      ledger_.give(path, conditions_.gbs);
      if (stopped()) return;
    }
  }

  void commit() {
    const Route mine = route_;
    const auto* forced = forced_;
    routes_.push_back(mine);
    std::fill(used_.begin(), used_.end(), false);
    next_channel();
    routes_.pop_back();
    route_ = mine;
    forced_ = forced;
    for (const uint32_t device : route_.devices) used_[device] = true;
  }

  /// The next devices after `at`, in this order: most bandwidth left, fewest hops, devices that could leave by the
  /// ring's network port last, PCI order.
  const std::vector<Candidate>& sort_candidates(uint32_t at) {
    const uint32_t count = machine_.device_count();
    // The lists of earlier places, on this route and on complete routes, are still in use.
    std::vector<Candidate>& sorted = candidates_[routes_.size() * count + route_.devices.size()];
    sorted.clear();
    for (uint32_t next = 0; next < count; ++next) {
      const tutti_system_path& path = machine_.between(at, next);
      if (used_[next] || path.type > conditions_.intra_type) continue;
      const double left = ledger_.left(path);
      if (left < conditions_.gbs * (1 - 1e-9)) continue;
      const bool wanted_last = is_ring() && !conditions_.cross_nic && machine_.net_count() > 0 &&
                               machine_.out_of(next, route_.net_in).type <= TUTTI_PATH_PXB;
      sorted.push_back({{wanted_last, -left, path.hop_count, (next + count - at) % count}, next});
    }
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }

  std::vector<uint32_t> exits(uint32_t last) const {
    if (!conditions_.cross_nic) return {route_.net_in};
    std::vector<uint32_t> nets = nets_by_use();
    std::stable_sort(nets.begin(), nets.end(), [&](uint32_t a, uint32_t b) {
      return machine_.out_of(last, a).type < machine_.out_of(last, b).type;
    });
    return nets;
  }

  /// The least used first.
  std::vector<uint32_t> nets_by_use() const {
    std::vector<uint32_t> nets(machine_.net_count());
    for (uint32_t net = 0; net < nets.size(); ++net) nets[net] = net;
    std::stable_sort(nets.begin(), nets.end(), [&](uint32_t a, uint32_t b) { return net_uses_[a] < net_uses_[b]; });
    return nets;
  }

  /// The devices in the order of their distance from the port; with equal distances, first the devices by which fewer
  /// channels enter.
  std::vector<uint32_t> devices_close_to(uint32_t net) const {
    std::vector<uint32_t> devices(machine_.device_count());
    for (uint32_t device = 0; device < devices.size(); ++device) devices[device] = device;
    const auto key = [&](uint32_t device) {
      const tutti_system_path& path = machine_.into(net, device);
      return std::tuple(path.type, -path.gbs, entries_[device], path.hop_count);
    };
    std::stable_sort(devices.begin(), devices.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    return devices;
  }

  const Machine& machine_;
  const Conditions conditions_;
  const uint32_t goal_;
  uint64_t steps_;  // left
  const uint64_t patience_;
  uint64_t give_up_at_;
  Ledger ledger_;
  std::vector<bool> used_;                          // devices on the current route
  std::vector<uint32_t> entries_;                   // channels that enter by each device
  std::vector<uint32_t> net_uses_;                  // channels that enter by each port
  std::vector<uint32_t> net_exits_;                 // channels of a ring that leave by each port
  std::vector<std::vector<Candidate>> candidates_;  // by route and place on it
  const std::vector<uint32_t>* forced_ = nullptr;
  Route route_;
  std::vector<Route> routes_;  // complete routes
  std::vector<Route> best_;
};

}  // namespace tutti::sdk::detail
