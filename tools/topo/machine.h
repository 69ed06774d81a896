// SPDX-License-Identifier: Apache-2.0
// The machine that `tutti topo` looks at: a document, and the system graph where there is something to reach.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/document.h"
#include "topology/system.h"

namespace tutti::tools {

struct MachineOptions {
  std::string file;  ///< empty: this machine
  std::string config_file;
  std::vector<std::string> settings;
  uint32_t rank_count = 0;        ///< 0: one per GPU, without GPUs one per NUMA node
  bool merge = false;             ///< merges the file over the devices of this machine
  bool complete = false;          ///< GPUs and adapters of the file's places, by class code
  std::vector<std::string> gpus;  ///< bus ids of further places that are GPUs
  double mbps = 100e3;            ///< speed of completed adapters
  int sm = 80;                    ///< architecture of completed GPUs
};

struct Machine {
  topology::Document document;
  std::optional<topology::System> system;  ///< none: an overlay
  bool is_overlay = false;

  static Result<Machine> load(const MachineOptions& options);

  /// The node of a part of the document; none where it was trimmed.
  std::optional<uint32_t> node(const topology::Pci& pci) const;
  std::optional<uint32_t> node(const topology::Cpu& cpu) const;
  std::optional<uint32_t> node(const topology::Net& net) const;
  std::optional<uint32_t> adapter(const topology::Net& net) const;
  /// GB/s of the link between two nodes, or of the path if there is none; 0 where one was trimmed.
  double gbs(std::optional<uint32_t> from, std::optional<uint32_t> to) const;
};

/// "16.0 GT/s ×16"; empty if the document says neither.
std::string link_text(const topology::Pci& pci);
/// "GPU 0", "GPU 0000:03:00.0" if it has no number.
std::string gpu_text(const topology::Pci& pci);
/// "sm 90 (Hopper)", "gfx942".
std::string chip_text(const topology::Gpu& gpu);
/// "NUMA 0"; "CPU" where the machine tells no NUMA nodes apart.
std::string cpu_text(const topology::Cpu& cpu);
/// "GenuineIntel, 48 processors".
std::string processors_text(const topology::Cpu& cpu);

}  // namespace tutti::tools
