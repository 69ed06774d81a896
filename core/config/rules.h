// SPDX-License-Identifier: Apache-2.0
// Rules: the choices that are demanded or forbidden for a call. The first rule that matches a call decides.
//
//   rules:
//     - match: {collective: all_reduce, max_size: 64KiB, nodes: 1}
//       choose: {algorithm: direct, protocol: ll}
//     - match: {data_type: float16}
//       forbid: {network: socket}
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.h"
#include "config/schema.h"
#include "tutti/status.h"
#include "tutti/types.h"

namespace tutti::config {

struct Rule {
  // The conditions. An empty optional matches everything.
  std::optional<Collective> collective;
  std::optional<DataType> data_type;
  uint64_t min_size = 0;           ///< bytes of a block
  uint64_t max_size = UINT64_MAX;  ///< inclusive
  std::optional<uint32_t> ranks;
  std::optional<uint32_t> nodes;
  std::string link;    ///< "shm" or "net": the communicator has links of this kind; empty: any
  std::string device;  ///< "host" or "cuda": the device of the communicator; empty: any

  bool forbids = false;  ///< else it chooses: everything else is excluded
  std::string algorithm;
  std::string protocol;
  std::string network;
  std::optional<uint32_t> channels;

  std::string place;  ///< "job.yaml:12:5"
  // The place of each name above: "job.yaml:13:24".
  std::string algorithm_place;
  std::string protocol_place;
  std::string network_place;
};

/// Whether a rule matches calls of a communicator of so many ranks on so many hosts. `on_gpu`: its device is cuda.
bool matches_ranks(const Rule& rule, uint32_t ranks, uint32_t nodes, bool on_gpu);
/// Whether a rule matches every call.
bool matches_all(const Rule& rule);
/// Whether a rule leaves no candidate for a call that it matches, where ranks use this network.
bool excludes_network(const Rule& rule, std::string_view network);

/// Checks that each rule of one file can apply: the first rule that matches a call decides. kConfig, with the places of
/// both rules, if an earlier rule matches all calls of a rule.
Status check_hidden_rules(std::span<const Rule> rules);

/// The keys that `match`, `choose` and `forbid` may have: "rules.match.collective", "rules.choose.protocol", ...
std::span<const Key> rule_keys();

/// The rules under the key `rules`; the failure has the place.
Result<std::vector<Rule>> read_rules(const Node& list);

/// "match {max_size: 64KiB} choose {protocol: ll}": equal rules have equal texts, wherever they stand.
std::string to_string(const Rule& rule);

}  // namespace tutti::config
