// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/waits.h"

#include <thread>

#include "topology/affinity.h"

namespace tutti::communicator {
namespace {

/// The processors that at least one rank of a machine may use. All processors of the machine if a rank does not know.
uint32_t processors_of(const bootstrap::Hosts& hosts, const std::string& boot_id) {
  topology::CpuSet all;
  for (const bootstrap::HostIdentity& identity : hosts.identities()) {
    if (identity.boot_id != boot_id) continue;
    const auto own = topology::parse_cpu_mask(identity.processors);
    if (!own.ok() || own->empty()) return std::thread::hardware_concurrency();
    all = topology::unite(all, *own);
  }
  return static_cast<uint32_t>(all.size());
}

/// A number modulo the processors. In shared memory, neighbours of a ring share a processor, which saves half of the
/// transfers between processors. Over a network, neighbours have different processors: both ends of a message cost
/// processor time, and the ranks of the first exchange are neighbours.
uint32_t seat_of(const Crowd& crowd) {
  if (crowd.uses_network) return crowd.own;
  return static_cast<uint32_t>(uint64_t{crowd.own} * crowd.processors / crowd.ranks);
}

}  // namespace

Crowd crowd_of(const bootstrap::Hosts& hosts, uint32_t own) {
  const std::string& boot_id = hosts.of(own).boot_id;
  Crowd crowd{.ranks = 0, .processors = processors_of(hosts, boot_id)};
  for (uint32_t rank = 0; rank < hosts.ranks(); ++rank) {
    if (hosts.of(rank).boot_id != boot_id) continue;
    if (rank < own) ++crowd.own;
    ++crowd.ranks;
  }
  return crowd;
}

backend::Driver::Options waits_of(const config::Config& config, const Crowd& crowd) {
  const bool is_crowded = crowd.ranks > crowd.processors;
  const auto choose = [&](const char* key, uint32_t chosen) {
    const int64_t given = config.integer(key);
    return given != 0 ? static_cast<uint32_t>(given) : chosen;
  };
  backend::Driver::Options options;
  options.spins = choose("wait.spin", is_crowded ? 20 : 120);
  options.yields = choose("wait.yield", is_crowded ? 20 : 200);
  if (is_crowded) {
    options.drives = {};
    options.seat = seat_of(crowd);
  }
  options.operation_timeout = config.duration("timeouts.operation");
  return options;
}

}  // namespace tutti::communicator
