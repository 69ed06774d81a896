// SPDX-License-Identifier: Apache-2.0
#include "topology/element.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>

#include "topology/affinity.h"

namespace tutti::topology {
namespace {

const std::array<ElementKind, 10> kKinds = {{
    {"system", {"version", "name"}, {"cpu"}},
    {"cpu", {"host_hash", "numaid", "affinity", "processors", "arch", "vendor", "familyid", "modelid"}, {"pci", "nic"}},
    {"pci",
     {"busid", "class", "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"},
     {"pci", "gpu", "nic", "pcilink"}},
    {"gpu", {"dev", "sm", "gcn", "arch", "rank", "gdr"}, {"nvlink", "xgmi", "c2c"}},
    {"nvlink", {"target", "count", "tclass"}, {}},
    {"xgmi", {"target", "count", "tclass"}, {}},
    {"c2c", {"bw", "count"}, {}},
    {"pcilink", {"target"}, {}},
    {"nic", {}, {"net"}},
    {"net", {"name", "dev", "speed", "port", "latency", "guid", "maxconn", "gdr", "rail"}, {}},
}};

constexpr double kMostProcessors = 65536;  // of a NUMA node
constexpr uint32_t kSwitchClass = 0x068000;
constexpr uint32_t kCpuClass = 0x060400;
/// The address of a switch in files, since a switch has none of its own; target="switch" means the same.
constexpr std::string_view kSwitchAddress = "fffffff:ff:ff.0";

/// UTF-8 (RFC 3629) without control characters.
bool is_text(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                                                        : 0;
    if (length == 0 || lead < 0x20 || lead == 0x7f || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr std::array<uint32_t, 5> kShortest = {0, 0, 0x80, 0x800, 0x10000};
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    const bool control = code < 0xa0 && code >= 0x80;
    const bool no_character = (code & 0xfffe) == 0xfffe || code == 0xfeff || code == 0x2028 || code == 0x2029;
    if (code < kShortest[length] || code > 0x10ffff || surrogate || control || no_character) return false;
    i += length;
  }
  return true;
}

/// Older files have HIP's number of a chip instead of its name: 9.0.10, "gfx90a", is 910.
std::string gfx_name(const std::string& gcn) {
  if (gcn.empty() || gcn.starts_with("gfx")) return gcn;
  return gcn == "910" ? "gfx90a" : "gfx" + gcn;
}

/// Reads one document; the first mistake ends it.
class Decoder {
 public:
  explicit Decoder(std::string_view source) : source_(source) {}

  Result<Document> run(const Element& system) {
    Document document;
    document.source = source_;
    TUTTI_TRY(text(system, "name", document.name));
    TUTTI_TRY(number(system, "version", document.version, 1, 2));
    for (const Element& child : system.children) {
      TUTTI_ASSIGN(Cpu cpu, read_cpu(child));
      document.cpus.push_back(std::move(cpu));
    }
    return document;
  }

 private:
  Status wrong(const Element& at, std::string_view what) const {
    return Status(Code::kConfig, fmt::format("{}:{}: <{}>: {}", source_, at.line, at.tag, what));
  }

  Status text(const Element& at, std::string_view name, std::string& out) const {
    const std::string* value = at.attribute(name);
    if (value == nullptr) return {};
    if (!is_text(*value))
      return wrong(at, fmt::format("{} is no text: it has control characters or broken UTF-8", name));
    out = *value;
    return {};
  }

  Status processors(const Element& at, std::string_view name, std::string& out) const {
    TUTTI_TRY(text(at, name, out));
    const Result<CpuSet> parsed = parse_cpu_mask(out);
    return parsed.ok() ? Status() : wrong(at, fmt::format("{}: {}", name, parsed.status().text()));
  }

  /// As the kernel writes it in sysfs: "16.0 GT/s PCIe", or "Unknown".
  Status link_speed(const Element& at, std::string_view name, std::string& out) const {
    TUTTI_TRY(text(at, name, out));
    if (out.empty() || out.starts_with("Unknown")) return {};
    double speed = 0;
    const auto [rest, error] = std::from_chars(out.data(), out.data() + out.size(), speed);
    const std::string_view unit(rest, out.data() + out.size());
    if (error == std::errc() && speed > 0 && (unit.empty() || unit.starts_with(" GT/s"))) return {};
    return wrong(
        at, fmt::format("{}=\"{}\" is no speed of a PCI link: write GT/s as 32.0 GT/s, or leave it out", name, out));
  }

  /// Decimal, or hexadecimal after "0x". An empty value is one not given.
  template <class T>
  Status number(const Element& at, std::string_view name, T& out, int64_t minimum, int64_t maximum) const {
    const std::string* value = at.attribute(name);
    if (value == nullptr || value->empty()) return {};
    const bool hex = value->starts_with("0x") || value->starts_with("0X");
    const char* begin = value->data() + (hex ? 2 : 0);
    const char* end = value->data() + value->size();
    int64_t parsed = 0;
    const auto [rest, error] = std::from_chars(begin, end, parsed, hex ? 16 : 10);
    if (error != std::errc() || rest != end || parsed < minimum || parsed > maximum) {
      return wrong(at, fmt::format("{}=\"{}\" is no number from {} to {}", name, *value, minimum, maximum));
    }
    out = static_cast<T>(parsed);
    return {};
  }

  Status number64(const Element& at, std::string_view name, uint64_t& out) const {
    const std::string* value = at.attribute(name);
    if (value == nullptr || value->empty()) return {};
    const bool hex = value->starts_with("0x") || value->starts_with("0X");
    const char* end = value->data() + value->size();
    const auto [rest, error] = std::from_chars(value->data() + (hex ? 2 : 0), end, out, hex ? 16 : 10);
    if (error == std::errc() && rest == end) return {};
    return wrong(at, fmt::format("{}=\"{}\" is no number of 64 bits", name, *value));
  }

  Status real(const Element& at, std::string_view name, double& out, double maximum) const {
    const std::string* value = at.attribute(name);
    if (value == nullptr || value->empty()) return {};
    const char* end = value->data() + value->size();
    const auto [rest, error] = std::from_chars(value->data(), end, out);
    if (error == std::errc() && rest == end && out >= 0 && out <= maximum) return {};
    return wrong(at, fmt::format("{}=\"{}\" is no number from 0 to {:g}", name, *value, maximum));
  }

  Status flag(const Element& at, std::string_view name, bool& out) const {
    int value = out ? 1 : 0;
    TUTTI_TRY(number(at, name, value, 0, 1));
    out = value != 0;
    return {};
  }

  Result<BusId> bus(const Element& at, std::string_view name) const {
    const std::string* value = at.attribute(name);
    if (value == nullptr) return wrong(at, fmt::format("lacks {}, a PCI address such as 0000:3b:00.0", name));
    Result<BusId> parsed = BusId::parse(*value);
    return parsed.ok() ? parsed : Result<BusId>(wrong(at, fmt::format("{}: {}", name, parsed.status().text())));
  }

  Result<Cpu> read_cpu(const Element& at) {
    Cpu cpu;
    cpu.position = {at.line};
    TUTTI_TRY(number(at, "numaid", cpu.numa, -1, 4095));
    TUTTI_TRY(processors(at, "affinity", cpu.affinity));
    TUTTI_TRY(real(at, "processors", cpu.processors, kMostProcessors));
    TUTTI_TRY(text(at, "arch", cpu.arch));
    TUTTI_TRY(text(at, "vendor", cpu.vendor));
    TUTTI_TRY(text(at, "host_hash", cpu.host_hash));
    TUTTI_TRY(number(at, "familyid", cpu.family, -1, 65535));
    TUTTI_TRY(number(at, "modelid", cpu.model, -1, 65535));
    const auto [other, added] = numas_.try_emplace(cpu.numa, at.line);
    if (!added && cpu.numa >= 0) {
      return wrong(at, fmt::format("numaid {} is already that of line {}", cpu.numa, other->second));
    }
    for (const Element& child : at.children) {
      if (child.tag == "pci") {
        TUTTI_ASSIGN(Pci device, read_pci(child));
        cpu.pci.push_back(std::move(device));
      } else {
        TUTTI_ASSIGN(Nic nic, read_nic(child));
        cpu.nics.push_back(std::move(nic));
      }
    }
    return cpu;
  }

  Result<Pci> read_pci(const Element& at) {
    constexpr int64_t kMaxId = 0xffffff;
    Pci device;
    device.position = {at.line};
    TUTTI_ASSIGN(device.bus, bus(at, "busid"));
    const auto [other, added] = buses_.try_emplace(device.bus, at.line);
    if (!added) {
      return wrong(at, fmt::format("bus id {} is already that of line {}", device.bus.text(), other->second));
    }
    TUTTI_TRY(number(at, "class", device.pci_class, 0, kMaxId));
    TUTTI_TRY(number(at, "vendor", device.vendor, 0, kMaxId));
    TUTTI_TRY(number(at, "device", device.device, 0, kMaxId));
    TUTTI_TRY(number(at, "subsystem_vendor", device.subsystem_vendor, 0, kMaxId));
    TUTTI_TRY(number(at, "subsystem_device", device.subsystem_device, 0, kMaxId));
    TUTTI_TRY(link_speed(at, "link_speed", device.link_speed));
    TUTTI_TRY(number(at, "link_width", device.link_width, 0, 256));
    for (const Element& child : at.children) TUTTI_TRY(read_below(child, device));
    return device;
  }

  Status read_below(const Element& child, Pci& device) {
    if (child.tag == "pci") {
      TUTTI_ASSIGN(Pci below, read_pci(child));
      device.children.push_back(std::move(below));
    } else if (child.tag == "gpu") {
      if (device.gpu) return wrong(child, fmt::format("is the second GPU of {}", device.bus.text()));
      TUTTI_ASSIGN(Gpu gpu, read_gpu(child));
      device.gpu = std::move(gpu);
    } else if (child.tag == "nic") {
      TUTTI_ASSIGN(Nic nic, read_nic(child));
      device.nics.push_back(std::move(nic));
    } else {
      TUTTI_ASSIGN(const BusId peer, bus(child, "target"));
      device.peers.push_back(peer);
    }
    return {};
  }

  Result<Gpu> read_gpu(const Element& at) const {
    Gpu gpu;
    gpu.position = {at.line};
    TUTTI_TRY(number(at, "dev", gpu.dev, -1, 1 << 20));
    TUTTI_TRY(number(at, "sm", gpu.sm, 0, 1000));
    TUTTI_TRY(text(at, "gcn", gpu.gcn));
    gpu.gcn = gfx_name(gpu.gcn);
    TUTTI_TRY(number(at, "arch", gpu.arch, 0, UINT32_MAX));
    TUTTI_TRY(number(at, "rank", gpu.rank, -1, INT32_MAX));
    TUTTI_TRY(flag(at, "gdr", gpu.direct));
    for (const Element& child : at.children) {
      if (child.tag == "c2c") {
        C2c c2c;
        TUTTI_TRY(real(child, "bw", c2c.gbs, 1e6));
        TUTTI_TRY(number(child, "count", c2c.count, 1, 1024));
        gpu.c2c = c2c;
        continue;
      }
      TUTTI_ASSIGN(PeerLink link, read_link(child));
      gpu.links.push_back(link);
    }
    return gpu;
  }

  Result<PeerLink> read_link(const Element& at) const {
    PeerLink link;
    link.kind = at.tag == "xgmi" ? PeerLink::Kind::kXgmi : PeerLink::Kind::kNvlink;
    const std::string* target = at.attribute("target");
    if (target != nullptr && *target == "switch") {
      link.target = *BusId::parse(kSwitchAddress);
      link.target_class = kSwitchClass;
    } else {
      TUTTI_ASSIGN(link.target, bus(at, "target"));
    }
    TUTTI_TRY(number(at, "count", link.count, 1, 1024));
    TUTTI_TRY(number(at, "tclass", link.target_class, 0, 0xffffff));
    const uint32_t base = link.target_class >> 8;
    link.to = base == 0x0680   ? PeerLink::Target::kSwitch
              : base == 0x0604 ? PeerLink::Target::kCpu
                               : PeerLink::Target::kGpu;
    return link;
  }

  Result<Nic> read_nic(const Element& at) const {
    Nic nic;
    nic.position = {at.line};
    for (const Element& child : at.children) {
      Net net;
      net.position = {child.line};
      TUTTI_TRY(text(child, "name", net.name));
      TUTTI_TRY(number(child, "dev", net.dev, -1, 1 << 20));
      TUTTI_TRY(real(child, "speed", net.mbps, 1e9));
      TUTTI_TRY(number(child, "port", net.port, 0, 65535));
      TUTTI_TRY(real(child, "latency", net.latency_us, 1e9));
      TUTTI_TRY(number64(child, "guid", net.guid));
      TUTTI_TRY(number(child, "maxconn", net.max_connections, 0, INT64_MAX));
      TUTTI_TRY(flag(child, "gdr", net.direct));
      TUTTI_TRY(number(child, "rail", net.rail, -1, 1 << 20));
      nic.nets.push_back(std::move(net));
    }
    return nic;
  }

  std::string source_;
  std::map<BusId, int> buses_;
  std::map<int, int> numas_;
};

/// Writes attributes in the order of their kind, and leaves out attributes that a document does not have.
class Encoder {
 public:
  explicit Encoder(std::string tag) { element_.tag = std::move(tag); }

  Encoder& text(const char* name, const std::string& value) {
    if (!value.empty()) add(name, value);
    return *this;
  }
  Encoder& number(const char* name, int64_t value, int64_t unsaid) {
    if (value != unsaid) add(name, fmt::format("{}", value));
    return *this;
  }
  Encoder& hex(const char* name, uint64_t value, int digits) {
    if (value != 0) add(name, fmt::format("0x{:0{}x}", value, digits));
    return *this;
  }
  Encoder& real(const char* name, double value) {
    if (value != 0) add(name, fmt::format("{}", value));
    return *this;
  }
  Encoder& child(Element element) {
    element_.children.push_back(std::move(element));
    return *this;
  }
  Element take() { return std::move(element_); }

 private:
  void add(const char* name, std::string value) { element_.attributes.emplace_back(name, std::move(value)); }
  Element element_;
};

Element encode_link(const PeerLink& link) {
  uint32_t target_class = link.target_class;
  if (target_class == 0 && link.to == PeerLink::Target::kSwitch) target_class = kSwitchClass;
  if (target_class == 0 && link.to == PeerLink::Target::kCpu) target_class = kCpuClass;
  return Encoder(link.kind == PeerLink::Kind::kXgmi ? "xgmi" : "nvlink")
      .text("target", link.target.text())
      .number("count", link.count, -1)
      .hex("tclass", target_class, 6)
      .take();
}

Element encode_gpu(const Gpu& gpu) {
  Encoder out("gpu");
  out.number("dev", gpu.dev, -1).number("sm", gpu.sm, 0).text("gcn", gpu.gcn).number("arch", gpu.arch, 0);
  out.number("rank", gpu.rank, -1).number("gdr", gpu.direct ? 1 : 0, -1);
  for (const PeerLink::Kind kind : {PeerLink::Kind::kNvlink, PeerLink::Kind::kXgmi}) {
    for (const PeerLink& link : gpu.links) {
      if (link.kind == kind) out.child(encode_link(link));
    }
  }
  if (gpu.c2c) out.child(Encoder("c2c").real("bw", gpu.c2c->gbs).number("count", gpu.c2c->count, -1).take());
  return out.take();
}

Element encode_nic(const Nic& nic) {
  Encoder out("nic");
  for (const Net& net : nic.nets) {
    Encoder port("net");
    port.text("name", net.name).number("dev", net.dev, -1).real("speed", net.mbps).number("port", net.port, 0);
    port.real("latency", net.latency_us).hex("guid", net.guid, 1).number("maxconn", net.max_connections, 0);
    port.number("gdr", net.direct ? 1 : 0, -1).number("rail", net.rail, -1);
    out.child(port.take());
  }
  return out.take();
}

Element encode_pci(const Pci& device) {
  Encoder out("pci");
  out.text("busid", device.bus.text()).hex("class", device.pci_class, 6).hex("vendor", device.vendor, 4);
  out.hex("device", device.device, 4).hex("subsystem_vendor", device.subsystem_vendor, 4);
  out.hex("subsystem_device", device.subsystem_device, 4).text("link_speed", device.link_speed);
  out.number("link_width", device.link_width, 0);
  if (device.gpu) out.child(encode_gpu(*device.gpu));
  for (const Nic& nic : device.nics) out.child(encode_nic(nic));
  for (const Pci& below : device.children) out.child(encode_pci(below));
  for (const BusId& peer : device.peers) out.child(Encoder("pcilink").text("target", peer.text()).take());
  return out.take();
}

}  // namespace

const std::string* Element::attribute(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

const ElementKind* kind_of(std::string_view tag) {
  for (const ElementKind& kind : kKinds) {
    if (kind.tag == tag) return &kind;
  }
  return nullptr;
}

Result<Document> decode(const Element& system, std::string_view source) {
  return Decoder(source).run(system);
}

Element encode(const Document& document) {
  Encoder out("system");
  out.number("version", document.version, 0).text("name", document.name);
  for (const Cpu& cpu : document.cpus) {
    Encoder node("cpu");
    node.text("host_hash", cpu.host_hash).number("numaid", cpu.numa, -2).text("affinity", cpu.affinity);
    node.real("processors", cpu.processors);
    node.text("arch", cpu.arch).text("vendor", cpu.vendor);
    node.number("familyid", cpu.family, 0).number("modelid", cpu.model, 0);
    for (const Pci& device : cpu.pci) node.child(encode_pci(device));
    for (const Nic& nic : cpu.nics) node.child(encode_nic(nic));
    out.child(node.take());
  }
  return out.take();
}

}  // namespace tutti::topology
