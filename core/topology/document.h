// SPDX-License-Identifier: Apache-2.0
// A machine as files describe it and as discovery finds it: a tree of CPUs, PCI devices, GPUs and network ports. The
// system graph (system.h) is built from it.
//
//   Document from_file = *Document::load("dgx.xml");         // NCCL's XML, or our YAML
//   Document machine = *merge(discovered, from_file);        // the file wins; entries that it lacks stay
//   write_xml(machine); write_yaml(machine);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.h"

namespace tutti::topology {

/// A PCI address: "0000:3b:00.0". The domain may have up to eight digits.
struct BusId {
  uint64_t value = 0;  ///< domain << 20 | bus << 12 | device << 4 | function

  /// kInvalidArgument if the text is no PCI address. Function and domain may be left out ("3b:00").
  static Result<BusId> parse(std::string_view text);
  std::string text() const;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the ordering's zero for a pointer
  friend auto operator<=>(const BusId&, const BusId&) = default;
};

/// The position of an entry in its file, for messages. Not part of the content of a document: all positions are equal.
struct FilePosition {
  int line = 0;  ///< from 1; 0: no file
  friend bool operator==(const FilePosition&, const FilePosition&) { return true; }
};

/// A bundle of equal links of one GPU: NVLink, or xGMI between AMD GPUs.
struct PeerLink {
  enum class Kind : uint8_t { kNvlink, kXgmi };
  enum class Target : uint8_t { kGpu, kSwitch, kCpu };
  Kind kind = Kind::kNvlink;
  Target to = Target::kGpu;  ///< by the PCI class of the target: 0x0680 an NVSwitch, 0x0604 a CPU, else a GPU
  BusId target;
  uint32_t target_class = 0;  ///< PCI class code (0x068000); 0: not given
  uint32_t count = 1;
  friend bool operator==(const PeerLink&, const PeerLink&) = default;
};

/// A CPU and its GPU on one module.
struct C2c {
  double gbs = 0;  ///< bandwidth of one link; 0: not given
  uint32_t count = 1;
  friend bool operator==(const C2c&, const C2c&) = default;
};

struct Gpu {
  int dev = -1;                 ///< device number; -1: not given
  int sm = 0;                   ///< compute capability × 10; 0: not given, or an AMD GPU
  std::string gcn;              ///< AMD: "gfx942"; empty: not an AMD GPU
  uint32_t arch = 0;            ///< AMD: as its files give it
  int rank = -1;                ///< as the file gives it; informative
  bool direct = false;          ///< `gdr`: a NIC may read and write its memory
  std::vector<PeerLink> links;  ///< files group them by kind, NVLink first
  std::optional<C2c> c2c;
  FilePosition position;
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

/// A port of a network adapter: one device of a network plugin.
struct Net {
  std::string name;  ///< "mlx5_0", "eth0"
  int dev = -1;      ///< number of the device in its network plugin; -1: not given
  double mbps = 0;   ///< 1e6 bits/s; 0: not known
  int port = 0;
  double latency_us = 0;
  uint64_t guid = 0;            ///< the same for all ports of an adapter; 0: not known
  int64_t max_connections = 0;  ///< most channels that enter, and most that leave by the port; 0: no limit
  bool direct = false;
  int rail = -1;
  FilePosition position;
  friend bool operator==(const Net&, const Net&) = default;
};

/// A network adapter: a PCI device, or virtual (beside a CPU).
struct Nic {
  std::vector<Net> nets;
  FilePosition position;
  friend bool operator==(const Nic&, const Nic&) = default;
};

/// A PCI device or switch. A device without gpu, nics and children is only a place: something a partial file knows the
/// position of.
struct Pci {
  BusId bus;
  uint32_t pci_class = 0;  ///< 0x030200 GPU, 0x060400 bridge, 0x02.... NIC; 0: not given
  uint32_t vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;  ///< 0: not given
  std::string link_speed;                                                       ///< "16.0 GT/s PCIe"; empty: not given
  uint32_t link_width = 0;                                                      ///< lanes; 0: not given
  std::optional<Gpu> gpu;
  std::vector<Nic> nics;
  std::vector<Pci> children;
  std::vector<BusId> peers;  ///< `pcilink`: devices reached without this one's parent
  FilePosition position;
  friend bool operator==(const Pci&, const Pci&) = default;
};

struct Cpu {
  int numa = -1;
  std::string affinity;   ///< NUMA node's processors as the kernel writes a mask: "000000ff,ffff0000"; empty: not given
  double processors = 0;  ///< of the NUMA node that the ranks of this host may use; 0: as many as `affinity` names
  std::string arch;       ///< "x86_64", "arm64", "ppc64"
  std::string vendor;     ///< "GenuineIntel", "AuthenticAMD"
  int family = 0, model = 0;
  std::string host_hash;
  std::vector<Pci> pci;
  std::vector<Nic> nics;  ///< virtual adapters
  FilePosition position;
  friend bool operator==(const Cpu&, const Cpu&) = default;
};

struct Document {
  std::string source;  ///< for messages: the file's name, "this machine"
  std::string name;    ///< the name in a YAML file; may be empty
  int version = 1;     ///< version of NCCL's XML: 1, or 2 in the dialect of AMD machines
  std::vector<Cpu> cpus;

  /// Reads NCCL's topology XML (either dialect) or our YAML form. The first character that is not space decides: '<' is
  /// XML. Errors name file, line and the allowed entries. A pipe is read, too, up to the limit of a document.
  static Result<Document> load(const std::string& file);
  static Result<Document> read_xml(std::string_view text, std::string_view source);
  static Result<Document> read_yaml(std::string_view text, std::string_view source);

  /// Whether it gives places only: no GPU element at all.
  bool is_overlay() const;
  /// The addresses of all GPUs, ascending.
  std::vector<BusId> gpus() const;
  /// Finds a PCI device anywhere in the tree; null if there is none.
  const Pci* find(BusId bus) const;
  Pci* find(BusId bus);
  /// Whether both have the same content; their origin does not count.
  friend bool operator==(const Document& a, const Document& b) {
    return a.name == b.name && a.version == b.version && a.cpus == b.cpus;
  }
};

/// NCCL's topology XML, in the dialect of document.version. Reading it again gives the same document.
std::string write_xml(const Document& document);
/// Our YAML form. Reading it again gives the same document.
std::string write_yaml(const Document& document);

/// Merges two documents of one machine. If `over` places a device or a port, that place holds. Data that only one
/// document has (GPU, its links, network ports, speeds) is kept. If both have a value, `over` wins. A port is
/// identified by its name, and by its number if several ports have this name; a port without a name by its place.
/// Entries that only `base` has stay below the same device and in the same adapter, after the entries of `over`.
/// kConfig if a device is a GPU in one document and a network adapter in the other.
Result<Document> merge(const Document& base, const Document& over);

/// Makes GPUs of the places whose PCI class is a GPU (0x03....), and adapters of places with the class of a network
/// controller (0x02....; one port, `mbps` as given), as if a machine had been found there. For partial files, away from
/// their machine. `gpus` names further places that are GPUs. Returns the number of GPUs. kNotFound names a bus id of
/// `gpus` that is not in the document.
Result<uint32_t> complete_overlay(Document& document, const std::vector<BusId>& gpus, double mbps, int sm);

}  // namespace tutti::topology
