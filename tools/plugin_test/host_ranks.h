// SPDX-License-Identifier: Apache-2.0
// A protocol under test on the host: one thread runs the works of all ranks in turns, over connections in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "program/program.h"
#include "tools/check/problem.h"
#include "tools/plugin_test/trial.h"
#include "tutti/plugin/protocol.h"

namespace tutti::tools::plugin_test {

/// The kinds of plans that the kit gives to protocols.
enum class Schedule { kRing, kOneShot, kTwoShot, kGather };
/// Steps that forward, that fold many messages, that scatter and gather; kGather is an all-gather.
std::string_view to_string(Schedule schedule);

/// One call of all ranks.
struct HostCall {
  check::Problem problem;
  Schedule schedule = Schedule::kRing;
  bool in_place = false;
  bool direct = false;                         ///< the receiver may read the memory of the sender
  size_t input_offset = 0, output_offset = 0;  ///< bytes from a line of the cache to the buffers
};
std::string to_string(const HostCall& call);

/// The outcome of a call that ended on all ranks.
struct HostOutcome {
  std::string wrong;                            ///< the first wrong element; empty: none
  std::string beyond;                           ///< memory outside of the output that was written; empty: none
  std::vector<std::vector<std::byte>> outputs;  ///< by rank
};

/// Ranks of one machine, or of a machine each.
class HostRanks {
 public:
  /// `link`: TUTTI_LINK_SHM or TUTTI_LINK_NETWORK. The layout is the plugin's, for slots of `slot_bytes`.
  HostRanks(Trial& trial, uint32_t link, uint32_t ranks, uint32_t slot_count = 8, uint64_t slot_bytes = 1024);
  ~HostRanks();
  HostRanks(const HostRanks&) = delete;
  HostRanks& operator=(const HostRanks&) = delete;

  /// Runs a call to its end. A failure of the plugin, and a call that does not end, violate PRO-7.
  HostOutcome run(const HostCall& call);

  // Parts of a call, for tests of waits and failures.
  struct Rank {
    program::Program program;
    tutti_program view{};
    std::vector<tutti_connection*> connections;
    std::vector<std::byte> input, output;  ///< memory with margins
    std::byte* in = nullptr;
    std::byte* out = nullptr;
    uint32_t abort = 0;
    tutti_work work{};
  };
  std::vector<std::unique_ptr<Rank>> prepare(const HostCall& call);
  int32_t step(Rank& rank);
  /// Carries messages between machines.
  void carry();

 private:
  struct Link;
  Link& link(uint32_t from, uint32_t to);
  void bind(Rank& rank, const HostCall& call, uint32_t index);

  Trial& trial_;
  uint32_t kind_;
  uint32_t count_;
  tutti_slot_layout layout_{};
  tutti_bell bell_{};
  std::vector<std::unique_ptr<Link>> links_;  ///< from each rank to each rank
  uint64_t calls_ = 0;
};

/// The layout that the plugin gives; a failure violates PRO-6.
tutti_slot_layout layout_of(Trial& trial, uint32_t link, uint32_t slot_count, uint64_t slot_bytes);
/// The properties; a failure violates PRO-5.
tutti_protocol_properties properties_of(Trial& trial);
/// The links on which the protocol runs on the host. Skips the rule if there is none.
std::vector<uint32_t> host_links(Trial& trial);
std::string_view link_name(uint32_t link);

}  // namespace tutti::tools::plugin_test
