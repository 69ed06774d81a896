// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/lent_memory.h"

#include <fmt/format.h>

#include <array>

#include "device/cuda/dmabuf.h"
#include "device/cuda/driver.h"

namespace tutti::cuda {
namespace {

/// The functions of the driver that make and map memory.
struct Driver : MappingFunctions {
  decltype(&cuDeviceGetAttribute) attribute = driver_function<decltype(attribute)>("cuDeviceGetAttribute");
  decltype(&cuMemGetAllocationGranularity) unit = driver_function<decltype(unit)>("cuMemGetAllocationGranularity");
  decltype(&cuMemCreate) create = driver_function<decltype(create)>("cuMemCreate");

  bool is_whole() const {
    return MappingFunctions::is_whole() && attribute != nullptr && unit != nullptr && create != nullptr;
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

bool has(CUdevice_attribute attribute, int device) {
  int yes = 0;
  return driver().is_whole() && driver().attribute(&yes, attribute, device) == CUDA_SUCCESS && yes != 0;
}

Status check(CUresult result, const char* call, int owner) {
  if (result == CUDA_SUCCESS) return {};
  return {Code::kDevice, fmt::format("{} failed (CUresult {}) for memory of GPU {} that a different GPU uses", call,
                                     static_cast<int>(result), owner)};
}

}  // namespace

Result<std::string> why_not_lent(const PciAddress& owner, int user, bool dmabuf) {
  TUTTI_ASSIGN(std::string why_not, why_unreachable(user, owner));
  if (!why_not.empty()) return why_not;
  TUTTI_ASSIGN(const int device, device_at(owner));
  const auto lacks = [&](CUdevice_attribute attribute) { return !has(attribute, device); };
  if (lacks(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
    return fmt::format("GPU {} or its driver has no virtual memory management", owner.data());
  }
  if (dmabuf && !exports_dmabufs(device)) return fmt::format("GPU {} exports no dmabufs", owner.data());
  if (lacks(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)) {
    return fmt::format("devices have no access to mapped memory of GPU {}", owner.data());
  }
  const auto probe = LentMemory::create(device, user, 1);
  if (!probe.ok()) return std::string(probe.status().text());
  if (!dmabuf) return std::string();
  const auto exported = export_dmabuf(probe->data(), probe->size(), user);
  return exported.ok() ? std::string()
                       : fmt::format("mapped memory of GPU {} is not exported as a dmabuf", owner.data());
}

/// An allocation, its addresses, and the mapping between them.
class LentMemory::Mapping {
 public:
  explicit Mapping(int owner) : owner_(owner) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (is_mapped_) driver().unmap(address_, bytes_);
    if (address_ != 0) driver().free(address_, bytes_);
    if (has_memory_) driver().release(memory_);
  }

  Status make(int user, uint64_t bytes) {
    CUmemAllocationProp kind{};
    kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, owner_};
    kind.allocFlags.gpuDirectRDMACapable = 1;
    size_t unit = 0;
    const Driver& cuda = driver();
    TUTTI_TRY(
        check(cuda.unit(&unit, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "cuMemGetAllocationGranularity", owner_));
    bytes_ = (bytes + unit - 1) / unit * unit;
    TUTTI_TRY(check(cuda.create(&memory_, bytes_, &kind, 0), "cuMemCreate", owner_));
    has_memory_ = true;
    TUTTI_TRY(check(cuda.reserve(&address_, bytes_, unit, 0, 0), "cuMemAddressReserve", owner_));
    TUTTI_TRY(check(cuda.map(address_, bytes_, 0, memory_, 0), "cuMemMap", owner_));
    is_mapped_ = true;
    const auto access_of = [](int device) {
      return CUmemAccessDesc{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    };
    const std::array access{access_of(user), access_of(owner_)};
    TUTTI_TRY(check(cuda.set_access(address_, bytes_, access.data(), access.size()), "cuMemSetAccess", owner_));
    return clear(data(), bytes_, user);
  }

  uint8_t* data() const { return reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(address_)); }
  uint64_t bytes() const { return bytes_; }

 private:
  int owner_;
  uint64_t bytes_ = 0;
  CUmemGenericAllocationHandle memory_{};
  CUdeviceptr address_ = 0;
  bool has_memory_ = false;
  bool is_mapped_ = false;
};

Result<LentMemory> LentMemory::create(int owner, int user, uint64_t bytes) {
  if (!driver().is_whole()) {
    return Status(Code::kUnsupported, "the driver maps no memory of one GPU for a different GPU");
  }
  const DeviceScope scope(user);
  const CaptureScope capture;
  LentMemory memory;
  memory.mapping_ = std::make_shared<Mapping>(owner);
  TUTTI_TRY(memory.mapping_->make(user, bytes));
  return memory;
}

uint8_t* LentMemory::data() const {
  return mapping_->data();
}

uint64_t LentMemory::size() const {
  return mapping_->bytes();
}

}  // namespace tutti::cuda
