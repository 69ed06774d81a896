// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/waits.h"

#include <thread>

namespace tutti::communicator {
namespace {

/// A number modulo the processors. In shared memory, neighbours of a ring share a processor, which saves half of the
/// transfers between processors. Over a network, neighbours have different processors: both ends of a message cost
/// processor time, and the ranks of the first exchange are neighbours.
uint32_t seat_of(const Crowd& crowd, uint32_t processors) {
  if (crowd.uses_network) return crowd.own;
  return static_cast<uint32_t>(uint64_t{crowd.own} * processors / crowd.ranks);
}

}  // namespace

backend::Driver::Options waits_of(const config::Config& config, const Crowd& crowd) {
  const uint32_t processors = std::thread::hardware_concurrency();
  const bool is_crowded = crowd.ranks > processors;
  const auto choose = [&](const char* key, uint32_t chosen) {
    const int64_t given = config.integer(key);
    return given != 0 ? static_cast<uint32_t>(given) : chosen;
  };
  backend::Driver::Options options;
  options.spins = choose("wait.spin", is_crowded ? 20 : 120);
  options.yields = choose("wait.yield", is_crowded ? 20 : 200);
  if (is_crowded) {
    options.drives = {};
    options.seat = seat_of(crowd, processors);
  }
  options.operation_timeout = config.duration("timeouts.operation");
  return options;
}

}  // namespace tutti::communicator
