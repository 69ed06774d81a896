// SPDX-License-Identifier: Apache-2.0
// The machine of a rank.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topology/document.h"
#include "topology/system.h"
#include "transport/net.h"

namespace tutti::communicator {

/// The NUMA node on which the calling thread runs, with its processors; none if the kernel does not report it.
std::optional<topology::Cpu> current_numa_node();

/// The NUMA node of a PCI device ("0000:18:00.0"), with its processors; none if the kernel does not report it.
/// `devices`, `nodes`: the folders of the kernel.
std::optional<topology::Cpu> numa_node_of(const std::string& address,
                                          const std::string& devices = "/sys/bus/pci/devices",
                                          const std::string& nodes = "/sys/devices/system/node");

struct MachineOptions {
  std::string file;                         ///< topology.file: merged over the discovered machine; empty: none
  const transport::Net* network = nullptr;  ///< whose devices are the ports; null: ranks of other machines do not exist
  std::vector<topology::RankPlace> ranks;   ///< ranks of this machine
  bool second_gpus = true;                  ///< as in topology::BuildOptions
  bool stand_in = false;                    ///< host ranks take the GPUs of the file, in PCI order
  bool other_networks = false;              ///< the job has further networks, whose ports the file may name
  const topology::Hardware* hardware = nullptr;
};

/// Places each rank on the GPU at its address; `addresses` has all ranks of the job. Ranks may share a GPU. If an
/// address is no PCI address or the GPUs do not reach each other, no rank is placed on a GPU. The figures of the GPUs
/// hold all the same.
void place_on_gpus(std::vector<topology::RankPlace>& ranks, std::span<const std::string> addresses,
                   bool reach_each_other);

/// Discovers this machine, merges the file over it, and places the ranks. If GPUs of ranks are not found there, all
/// ranks are placed by their NUMA nodes, and the log says so at info. kConfig: ranks stand in for GPUs, but the file
/// does not have enough GPUs.
Result<topology::System> describe_machine(const MachineOptions& options);

}  // namespace tutti::communicator
