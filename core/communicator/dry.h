// SPDX-License-Identifier: Apache-2.0
// A communicator without devices: search, connect, choice and plans for a cluster of equal machines, in one process.
// Its limits are the limits of a job on a real cluster of this form (setup/limits.h). The ranks are GPUs. If the
// configuration has `topology.host_ranks: gpu`, and `device` is the host, the ranks are host ranks in place of GPUs. If
// the machine has no GPU, the ranks are host ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "communicator/setup/choices.h"
#include "communicator/setup/limits.h"
#include "communicator/setup/network.h"
#include "config/config.h"
#include "program/plan.h"
#include "topology/hardware.h"
#include "topology/system.h"

namespace tutti::communicator {

/// One thread at a time.
class DryCommunicator {
 public:
  struct Options {
    topology::Document machine;
    uint32_t node_count = 1;  ///< number of machines; at most 2^20 ranks in all
    config::Config config;    ///< plugins and `channels` as for any communicator
    uint32_t ranks_here = 0;  ///< ranks of a machine: its first GPUs in PCI order; 0: one per GPU. A machine without
                              ///< GPUs has host ranks, which the NUMA nodes get in turn
  };

  /// One algorithm on this cluster.
  struct Channels {
    topology::NodeGraph graph;  ///< graph of the first machine; all machines are equal
    std::string reduced;        ///< "2 channels instead of 4: ..." by limits of ports; empty: as many as wanted
    double search_seconds = 0;
    double connect_seconds = 0;  ///< for all ranks together
  };

  static Result<std::unique_ptr<DryCommunicator>> create(Options options);

  const topology::System& system() const { return *system_; }
  uint32_t rank_count() const { return topology_.rank_count; }
  uint32_t node_count() const { return topology_.node_count; }
  /// In the order of the configuration; channels()[i] belongs to algorithms()[i].
  const std::vector<tuner::Algorithm>& algorithms() const { return selector_->choices().algorithms; }
  const std::vector<Channels>& channels() const { return channels_; }
  /// Leaves out the candidates that a communicator leaves out. For more ranks than a communicator on GPUs takes, the
  /// limits of kernels on plans leave out nothing.
  const tuner::Selector& selector() const { return *selector_; }
  /// ok: a communicator can have these ranks. Else kUnsupported with the limit.
  Status takes() const;
  /// The calls of the collective that a communicator of these ranks refuses or leaves out, and the algorithms that get
  /// fewer channels by limits of ports: a line each.
  std::vector<std::string> limits(Collective collective) const;

  /// The plan of one rank on one channel for a decision of the selector or of the caller.
  Result<program::Plan> plan(const tuner::Decision& decision, Collective collective, uint32_t rank, uint32_t channel,
                             uint32_t root = 0) const;

 private:
  DryCommunicator(config::Config config, const topology::Document& machine);
  bool on_gpu() const { return device_ == TUTTI_DEVICE_CUDA; }
  Status check_device(const topology::Document& machine) const;
  Status describe(const topology::Document& machine, uint32_t node_count, uint32_t ranks_here);
  Status choose_networks(uint32_t ranks, uint32_t node_count);
  Status limit(const topology::Document& machine, tuner::Choices& choices);
  void add_networks(Links& links, uint32_t channels, tuner::Choices& choices) const;
  Status connect(tuner::Choices& choices);
  std::string why_not(uint32_t algorithm, uint32_t variant, Collective collective) const;

  config::Config config_;
  topology::Hardware hardware_;
  uint32_t device_;  // TUTTI_DEVICE_*
  std::shared_ptr<plugin::Registry> registry_;
  std::unique_ptr<topology::System> system_;
  std::vector<uint32_t> node_of_rank_;
  tutti_system view_{};
  tutti_topology topology_{};
  NetworkChoice networks_;  // of several machines
  std::vector<Channels> channels_;
  std::unique_ptr<tuner::Selector> selector_;
};

}  // namespace tutti::communicator
