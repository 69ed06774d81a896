// SPDX-License-Identifier: Apache-2.0
// The system graph of one machine: nodes, links with their bandwidth, and the best path between all pairs. See
// tutti/plugin/topology.h for the meaning of every field.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/document.h"
#include "topology/hardware.h"
#include "tutti/plugin/topology.h"
#include "tutti/status.h"

namespace tutti::topology {

/// The place at which a rank computes. Several ranks may have one GPU.
struct RankPlace {
  uint32_t rank = 0;
  bool on_gpu = false;
  BusId gpu;              ///< on_gpu: the GPU
  int numa = -1;          ///< otherwise: the NUMA node it runs on; -1: any, the first
  bool computes = false;  ///< not on_gpu: the rank computes on `gpu` all the same, whose figures hold
};

struct BuildOptions {
  /// The ranks of this machine. Empty: one rank per GPU in PCI order, from 0.
  std::vector<RankPlace> ranks;
  /// Whether paths that leave the machine matter; otherwise network ports and adapters are trimmed.
  bool networks = true;
  /// The network plugin of the ports ("socket"), for ports without a speed; empty: any.
  std::string network;
  const Hardware* hardware = nullptr;  ///< null: Hardware::built_in()
  bool second_gpus = true;             ///< whether paths to ports may lead through a second GPU (PXN)
};

/// The places of `count` ranks: the first GPUs in PCI order. Without a GPU, the NUMA nodes in turn. 0: one rank per
/// GPU, or per NUMA node. If the GPUs are fewer: with `may_share` the GPUs in turn, otherwise kInvalidArgument.
Result<std::vector<RankPlace>> places_of(const Document& document, uint32_t count, bool may_share = false);

/// Immutable. Copyable; view() borrows from it. Any thread.
class System {
 public:
  /// Builds nodes and links, finds all paths, and removes nodes that no rank reaches. GPUs without a rank stay as
  /// relays only if a path of a rank uses them. Errors (kConfig) name the document, the line, and the problem: no CPU,
  /// a bus id that occurs twice, a link to no device, a rank whose GPU does not exist.
  static Result<System> build(const Document& document, const BuildOptions& options = {});

  std::span<const tutti_system_node> nodes() const { return nodes_; }
  std::span<const tutti_system_link> links() const { return links_; }
  const tutti_system_path& path(uint32_t from, uint32_t to) const { return paths_[size_t{from} * nodes_.size() + to]; }
  /// The links of a path, in order.
  std::span<const uint32_t> hops(const tutti_system_path& path) const {
    return std::span(hops_).subspan(path.hop_begin, path.hop_count);
  }
  /// Nodes that carry a rank, by rank.
  std::vector<uint32_t> rank_nodes() const;
  std::vector<uint32_t> nodes_of(uint32_t type) const;

  /// "GPU 3", "mlx5_0", "PCI 0000:10:00.0", "NUMA 1", "NVSwitch".
  const std::string& name(uint32_t node) const { return names_[node]; }
  /// The rail of a port; -1: unknown, or no port.
  int rail(uint32_t node) const { return rails_[node]; }
  /// Figures of the GPU that a node is, or on which the node's rank computes; zeros: there is none.
  const GpuFigures& gpu(uint32_t node) const { return gpus_[node]; }
  /// Processors of all NUMA nodes that the ranks may use; 0: unknown, since a node states neither their number nor
  /// their mask. A host that shares its machine may have a part of a processor.
  double processors() const { return processors_; }
  tutti_system view() const;

 private:
  std::vector<tutti_system_node> nodes_;
  std::vector<std::string> names_;
  std::vector<int> rails_;
  std::vector<GpuFigures> gpus_;
  std::vector<tutti_system_link> links_;
  std::vector<tutti_system_path> paths_;
  std::vector<uint32_t> hops_;
  double processors_ = 0;
};

/// "NVL", "PIX" ... and back (kInvalidArgument for an unknown name).
std::string_view path_name(uint32_t type);
Result<uint32_t> path_from(std::string_view name);
/// "GPU", "NVSwitch", "NUMA" ...
std::string_view node_type_name(uint32_t type);
std::string_view wire_name(uint32_t type);

}  // namespace tutti::topology
