// SPDX-License-Identifier: Apache-2.0
#include "topology/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "log/log.h"

namespace tutti::topology {
namespace {

// The used part of NVML's ABI, after its documentation ("NVML API Reference Guide"). Own declarations, because nvml.h
// comes with the CUDA toolkit and this file must build without it.
using Return = int;  // 0: success
using Device = struct nvmlDevice_st*;

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_and_vendor;  // device id << 16 | vendor id
  unsigned subsystem;          // as vendor and device
  char bus_id[32];
};

struct FieldValue {  // nvmlFieldValue_t
  unsigned field;
  unsigned scope;
  long long timestamp;
  long long latency_us;
  int value_type;
  Return result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_unsigned64;
  } value;
};

constexpr unsigned kMaxLinks = 36;     // more than any GPU has; the library refuses links that do not exist
constexpr unsigned kC2cCount = 170;    // NVML_FI_DEV_C2C_LINK_COUNT
constexpr unsigned kC2cStatus = 171;   // NVML_FI_DEV_C2C_LINK_GET_STATUS, scope: link
constexpr unsigned kC2cMaxMbps = 172;  // NVML_FI_DEV_C2C_LINK_GET_MAX_BW, MB/s, scope: link
constexpr int kRemoteGpu = 0;          // nvmlIntNvLinkDeviceType_t
constexpr int kRemoteIbmNpu = 1;
constexpr int kRemoteSwitch = 2;
constexpr int kRemoteUnknown = 255;

/// The address of a target without PCI address: "fffffff:ff:ff.0" as in NCCL's files. NVML writes the domain with a
/// different digit.
constexpr BusId kNoAddress = {uint64_t{0xfffffff} << 20 | 0xffff0};
constexpr uint64_t kWithoutDomain = 0xfffff;

/// The functions of the open library. The last four may be missing in old drivers.
class Nvml {
 public:
  static std::optional<Nvml> open(const std::string& library);
  Nvml(Nvml&& other) noexcept = default;
  Nvml& operator=(Nvml&& other) noexcept = default;
  ~Nvml() {
    if (library_ != nullptr) shutdown_();
  }

  std::vector<NvmlGpu> gpus() const;

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  Nvml() = default;

  template <class Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_.get(), name));
    return function != nullptr;
  }
  std::optional<NvmlGpu> gpu(unsigned index) const;
  std::vector<PeerLink> links(Device device) const;
  std::optional<PeerLink> link(Device device, unsigned number) const;
  std::optional<C2c> c2c(Device device) const;
  unsigned field(Device device, unsigned id, unsigned scope = 0) const;

  std::unique_ptr<void, Close> library_;
  Return (*shutdown_)() = nullptr;
  Return (*count_)(unsigned*) = nullptr;
  Return (*by_index_)(unsigned, Device*) = nullptr;
  Return (*pci_info_)(Device, PciInfo*) = nullptr;
  Return (*capability_)(Device, int*, int*) = nullptr;
  Return (*link_state_)(Device, unsigned, int*) = nullptr;
  Return (*link_remote_)(Device, unsigned, PciInfo*) = nullptr;
  Return (*link_remote_type_)(Device, unsigned, int*) = nullptr;
  Return (*fields_)(Device, int, FieldValue*) = nullptr;
};

std::optional<Nvml> Nvml::open(const std::string& library) {
  Nvml nvml;
  nvml.library_.reset(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (nvml.library_ == nullptr) {
    log::debug("no NVIDIA GPUs: {}", dlerror());
    return std::nullopt;
  }
  Return (*init)() = nullptr;
  const bool complete = nvml.find(init, "nvmlInit_v2") && nvml.find(nvml.shutdown_, "nvmlShutdown") &&
                        nvml.find(nvml.count_, "nvmlDeviceGetCount_v2") &&
                        nvml.find(nvml.by_index_, "nvmlDeviceGetHandleByIndex_v2") &&
                        nvml.find(nvml.pci_info_, "nvmlDeviceGetPciInfo_v3") &&
                        nvml.find(nvml.capability_, "nvmlDeviceGetCudaComputeCapability");
  nvml.find(nvml.link_state_, "nvmlDeviceGetNvLinkState");
  nvml.find(nvml.link_remote_, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  nvml.find(nvml.link_remote_type_, "nvmlDeviceGetNvLinkRemoteDeviceType");
  nvml.find(nvml.fields_, "nvmlDeviceGetFieldValues");
  const Return result = complete ? init() : -1;
  if (result == 0) return nvml;
  log::debug("no NVIDIA GPUs: {} {}", library,
             complete ? fmt::format("refuses (error {})", result) : "is older than what is supported");
  nvml.library_.reset();  // so that shutdown is not called without a successful init
  return std::nullopt;
}

std::vector<NvmlGpu> Nvml::gpus() const {
  unsigned count = 0;
  std::vector<NvmlGpu> found;
  if (const Return result = count_(&count); result != 0) log::debug("NVML does not count its GPUs (error {})", result);
  for (unsigned index = 0; index < count; ++index) {
    if (auto one = gpu(index)) found.push_back(*std::move(one));
  }
  return found;
}

std::optional<NvmlGpu> Nvml::gpu(unsigned index) const {
  Device device = nullptr;
  PciInfo pci = {};
  int major = 0;
  int minor = 0;
  if (by_index_(index, &device) != 0 || pci_info_(device, &pci) != 0 || capability_(device, &major, &minor) != 0) {
    log::info("GPU {} does not answer and is left out", index);
    return std::nullopt;
  }
  const auto bus = BusId::parse(pci.bus_id);
  if (!bus.ok()) {
    log::info("GPU {} is left out: {}", index, bus.status().text());
    return std::nullopt;
  }
  NvmlGpu found = {.bus = *bus,
                   .vendor = pci.device_and_vendor & 0xffff,
                   .device = pci.device_and_vendor >> 16,
                   .subsystem_vendor = pci.subsystem & 0xffff,
                   .subsystem_device = pci.subsystem >> 16,
                   .gpu = {}};
  found.gpu.dev = static_cast<int>(index);
  found.gpu.sm = major * 10 + minor;
  found.gpu.direct = true;  // NVML does not say; a network that cannot reach GPU memory says so itself
  found.gpu.links = links(device);
  found.gpu.c2c = c2c(device);
  return found;
}

/// One bundle per target, in the order of their first links.
std::vector<PeerLink> Nvml::links(Device device) const {
  std::vector<PeerLink> bundles;
  if (link_state_ == nullptr) return bundles;
  for (unsigned number = 0; number < kMaxLinks; ++number) {
    const auto one = link(device, number);
    if (!one) continue;
    const auto same = std::ranges::find(bundles, one->target, &PeerLink::target);
    if (same == bundles.end()) {
      bundles.push_back(*one);
    } else {
      ++same->count;
    }
  }
  return bundles;
}

/// An active link, or nothing. In virtual machines and fabrics a switch at the remote side has no address.
std::optional<PeerLink> Nvml::link(Device device, unsigned number) const {
  int active = 0;
  if (link_state_(device, number, &active) != 0 || active == 0) return std::nullopt;
  PeerLink found = {.target = kNoAddress};
  PciInfo remote = {};
  if (link_remote_ != nullptr && link_remote_(device, number, &remote) == 0) {
    const auto target = BusId::parse(remote.bus_id);
    if (target.ok() && (target->value & kWithoutDomain) != (kNoAddress.value & kWithoutDomain)) found.target = *target;
  }
  int type = kRemoteUnknown;
  if (link_remote_type_ != nullptr) link_remote_type_(device, number, &type);
  if (type == kRemoteUnknown) type = found.target == kNoAddress ? kRemoteSwitch : kRemoteGpu;
  if (found.target == kNoAddress && type != kRemoteSwitch) return std::nullopt;
  found.to = type == kRemoteSwitch   ? PeerLink::Target::kSwitch
             : type == kRemoteIbmNpu ? PeerLink::Target::kCpu
                                     : PeerLink::Target::kGpu;
  constexpr std::array<uint32_t, 3> kClasses = {0x030200, 0x068000, 0x060400};  // by Target
  found.target_class = kClasses[static_cast<size_t>(found.to)];
  return found;
}

/// 0 if the field does not exist.
unsigned Nvml::field(Device device, unsigned id, unsigned scope) const {
  FieldValue value = {};
  value.field = id;
  value.scope = scope;
  const bool known = fields_ != nullptr && fields_(device, 1, &value) == 0 && value.result == 0;
  return known ? value.value.as_unsigned : 0;
}

std::optional<C2c> Nvml::c2c(Device device) const {
  C2c found = {.gbs = 0, .count = 0};
  const unsigned count = std::min(field(device, kC2cCount), kMaxLinks);
  for (unsigned link = 0; link < count; ++link) {
    if (field(device, kC2cStatus, link) == 0) continue;
    ++found.count;
    found.gbs = field(device, kC2cMaxMbps, link) / 1e3;
  }
  return found.count == 0 ? std::nullopt : std::optional(found);
}

}  // namespace

std::vector<NvmlGpu> nvml_gpus(const std::string& library) {
  const auto nvml = library.empty() ? std::nullopt : Nvml::open(library);
  return nvml ? nvml->gpus() : std::vector<NvmlGpu>();
}

}  // namespace tutti::topology
