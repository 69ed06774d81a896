// SPDX-License-Identifier: Apache-2.0
// The table of hardware figures: the latencies and bandwidths of GPUs, protocols, links, CPUs, memory and networks. A
// job and a dry run take their figures from here. configs/hardware/built-in.yaml is the built-in table, and explains
// each figure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.h"
#include "topology/document.h"

namespace tutti::topology {

/// One GPU. GB/s (1e9 bytes) are in one direction.
struct GpuFigures {
  double memory_gbs = 0;  ///< own memory, reads and writes together
  double link_gbs = 0;    ///< one NVLink or xGMI link
  double c2c_gbs = 0;     ///< one link to the CPU of the module
  double latency_us = 0;  ///< one flag to a GPU that this GPU reaches
  double gap_us = 0;      ///< from a small message to the next
  double staged_gbs = 0;  ///< through memory of the host
  double staged_latency_us = 0;
  double channel_gbs = 0;  ///< upper limit of one channel of a search
};

/// A protocol between GPUs that reach each other's memory. If the table has no figure, the protocol's own holds.
struct ProtocolFigures {
  std::optional<double> channel_gbs;  ///< bandwidth that one channel can fill
  std::optional<double> latency_us;   ///< latency that the protocol adds to each hop
};

/// Between host ranks that share memory.
struct MemoryFigures {
  double gbs = 0;
  double latency_us = 0;
  double gap_us = 0;     ///< processor time of each end of a message, if ranks share processors
  double switch_us = 0;  ///< from a rank that waits to the next rank of the same processor
};

/// A network, if its ports do not state more.
struct NetworkFigures {
  double gbs = 0;
  double latency_us = 0;
  double gap_us = 0;
  double processor_gbs = 0;  ///< one processor sends or receives
  double signal_us = 0;  ///< further time of a hop between GPUs if the protocol signals messages apart from the data
  bool file_has_latency = false;  ///< a file states latency_us, in place of the claims of plugins and topology files
};

/// Immutable. Any thread.
class Hardware {
 public:
  /// The table that the library contains.
  static const Hardware& built_in();
  /// The built-in table, with the figures of a file in place of its own. Empty: the built-in table. kNotFound, or
  /// kConfig with file, line and column.
  static Result<Hardware> load(const std::string& file);
  /// The same for a text. `name` stands for the file in errors.
  static Result<Hardware> read(const std::string& text, const std::string& name);

  /// An entry of a file that the built-in table lacks, for a plugin by its name.
  struct PluginEntry {
    std::string section;  ///< "networks" or "protocols"
    std::string plugin;   ///< "ll128", also of "ll128-sm90"
    std::string place;
  };
  /// The entries in the order of the file. Callers that know the plugins check the names.
  const std::vector<PluginEntry>& plugins_of_file() const { return plugins_of_file_; }
  /// The names of the entries in a section, without `default`.
  std::vector<std::string> entries(std::string_view section) const;

  /// `device` has a GPU.
  GpuFigures gpu(const Pci& device) const;
  /// The name of the entry that this GPU should have if only `default` holds for it ("sm75"); empty: an entry holds.
  std::string missing_entry(const Pci& device) const;
  /// The name of the entry that this speed should have if only `default` holds for it ("128"); empty: an entry holds,
  /// or the speed is not known.
  std::string missing_pci_entry(std::string_view link_speed) const;
  /// A PCI link from the data of the kernel: "16.0 GT/s PCIe", 16 lanes. An unknown width counts as 16 lanes.
  double pci_gbs(std::string_view link_speed, uint32_t link_width) const;
  /// Between the CPUs of a machine.
  double interconnect_gbs(const Cpu& cpu) const;
  MemoryFigures memory() const;
  /// `protocol`: the name of the plugin; `sm`: compute capability × 10 of the GPUs.
  ProtocolFigures protocol(std::string_view protocol, uint32_t sm) const;
  /// `plugin`: "socket", or "nccl:/lib/x.so"; empty: any network.
  NetworkFigures network(std::string_view plugin) const;

  /// "hardware.gpus.sm90.memory_gbs=2500" of each figure that the built-in table lacks or states differently. Must be
  /// equal on all ranks.
  std::vector<std::string> differences() const;

 private:
  using Entry = std::map<std::string, double, std::less<>>;   // by figure
  using Section = std::map<std::string, Entry, std::less<>>;  // by name of the entry
  using Table = std::map<std::string, Section, std::less<>>;  // by name of the section
  Status merge(const config::Node& root, const std::string& name);
  void note_plugin(const std::string& section, const config::Node& entry);
  /// The figure of the first of these entries that has it; null: none.
  const double* find(std::string_view section, std::span<const std::string> entries, std::string_view name) const;
  /// The same, else the figure of the entry `default`, else 0.
  double figure(std::string_view section, std::span<const std::string> entries, std::string_view name) const;

  Table table_;
  std::set<std::string> figures_of_file_;  // "networks.socket.latency_us"
  std::vector<PluginEntry> plugins_of_file_;
};

}  // namespace tutti::topology
