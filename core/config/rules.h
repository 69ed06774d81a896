// SPDX-License-Identifier: Apache-2.0
// Rules: which calls may, or may not, run on what.
//
//   rules:
//     - match: {collective: all_reduce, max_size: 64KiB, nodes: 1}
//       choose: {algorithm: direct, protocol: ll}
//     - match: {data_type: float16}
//       forbid: {network: socket}
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace YAML {
class Node;
}

#include "tutti/status.h"
#include "tutti/types.h"

namespace tutti::config {

struct Rule {
  // What it matches; an empty optional matches everything.
  std::optional<Collective> collective;
  std::optional<DataType> data_type;
  uint64_t min_size = 0;           ///< bytes of a block
  uint64_t max_size = UINT64_MAX;  ///< inclusive
  std::optional<uint32_t> ranks;
  std::optional<uint32_t> nodes;
  std::string link;  ///< "shm" or "net": the communicator has such links; empty: any

  bool forbids = false;  ///< else it chooses: everything else is excluded
  std::string algorithm;
  std::string protocol;
  std::string network;
  std::optional<uint32_t> channels;

  std::string place;  ///< "job.yaml:12:5"
};

/// Reads one rule; the failure has the place.
Result<Rule> read_rule(const YAML::Node& node, const std::string& file);
/// "job.yaml:12:5" of a node.
std::string place_of(const YAML::Node& node, const std::string& file);

}  // namespace tutti::config
