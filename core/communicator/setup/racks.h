// SPDX-License-Identifier: Apache-2.0
// Racks: groups of hosts, inside of which a network of its own carries the connections (net.racks, net.inside_rack).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "transport/connection.h"
#include "tuner/selector.h"

namespace tutti::communicator {

/// The network that net.inside_rack names, as a label; empty: it names none.
std::string network_inside_racks(const config::Config& config);

/// kConfig, with the place: an item of net.racks is no rack, racks have equal names, or net.inside_rack has no effect.
Status check_racks(const config::Config& config);

/// The racks of a communicator's ranks. Equal on all ranks: they have agreed on the configuration.
class Racks {
 public:
  Racks() = default;
  /// `hosts`: names by rank. kConfig, with the place: an item is no rack, racks have equal names or share a host, or
  /// net.inside_rack has no effect.
  static Result<Racks> read(const config::Config& config, const std::vector<std::string>& hosts);

  /// Whether one rack holds the hosts of both ranks.
  bool share(uint32_t a, uint32_t b) const { return rack_of_rank_[a] && rack_of_rank_[a] == rack_of_rank_[b]; }
  /// By rank: the network, as an index in `networks`, by which this rank reaches it inside its rack. Nothing: the call
  /// decides.
  transport::Paths paths(uint32_t rank, const std::vector<tuner::Network>& networks) const;
  /// The index of the network inside racks. Nothing: no two ranks on different hosts share a rack.
  std::optional<uint32_t> network(const std::vector<tuner::Network>& networks) const;
  /// A warning if racks have a network, and no rack holds any of several hosts; else empty.
  std::string warning() const;
  /// "rack 'left' (hosts a, b); rack 'right' (hosts c, d)": hosts of the ranks.
  std::string describe() const;

 private:
  std::string network_;  // empty: racks have no effect
  std::vector<std::string> names_;
  std::vector<std::string> hosts_;                   // by rank
  std::vector<std::optional<size_t>> rack_of_rank_;  // nothing: no rack
};

}  // namespace tutti::communicator
