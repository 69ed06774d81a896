// SPDX-License-Identifier: Apache-2.0
// Which ranks share a host, and so memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/gathered.h"
#include "tutti/status.h"

namespace tutti::bootstrap {

/// The identity of a host, with the processors of the rank that states it.
struct HostIdentity {
  std::string boot_id;         ///< the kernel's, new at every boot; the same in all containers of a host
  uint64_t pid_namespace = 0;  ///< processes of different namespaces cannot reach each other's memory by process id
  std::string pretended_name;  ///< makes ranks of one host act as if on several; empty: the truth
  std::string host_name;       ///< for messages only
  std::string processors;      ///< the rank may use them: a mask as the kernel writes it; empty: unknown

  bool same_host(const HostIdentity& other) const {
    return boot_id == other.boot_id && pid_namespace == other.pid_namespace && pretended_name == other.pretended_name;
  }
};

HostIdentity this_host(std::string_view pretended_name = {});

/// The form in which ranks exchange it.
std::vector<std::byte> encode(const HostIdentity& host);
Result<HostIdentity> decode_host(std::span<const std::byte> bytes);

/// The node of each rank: numbers from 0 on, in the order of each node's first rank.
std::vector<int> node_of_rank(std::span<const HostIdentity> hosts);

/// The hosts of all ranks. Equal bytes of several ranks are decoded once.
class Hosts {
 public:
  static Result<Hosts> decode(const Gathered& encoded);
  const HostIdentity& of(uint32_t rank) const { return identities_[identity_of_rank_[rank]]; }
  /// The node of a rank, as node_of_rank() numbers nodes.
  uint32_t node_of(uint32_t rank) const { return node_of_identity_[identity_of_rank_[rank]]; }
  /// All different identities, in the order of their first ranks.
  std::span<const HostIdentity> identities() const { return identities_; }
  uint32_t ranks() const { return static_cast<uint32_t>(identity_of_rank_.size()); }

 private:
  std::vector<HostIdentity> identities_;
  std::vector<uint32_t> node_of_identity_;
  std::vector<size_t> identity_of_rank_;
};

}  // namespace tutti::bootstrap
