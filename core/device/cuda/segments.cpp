// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/segments.h"

#include <fmt/format.h>

#include <cstddef>

#include "device/cuda/driver.h"

namespace tutti::cuda {
namespace {

constexpr size_t kMostSegments = 64;  // all ranks' are open files in every process, for a moment

/// The functions of the driver that map and share pieces.
struct Driver : MappingFunctions {
  decltype(&cuMemGetAddressRange) range = driver_function<decltype(range)>("cuMemGetAddressRange");
  decltype(&cuMemRetainAllocationHandle) retain = driver_function<decltype(retain)>("cuMemRetainAllocationHandle");
  decltype(&cuMemExportToShareableHandle) give = driver_function<decltype(give)>("cuMemExportToShareableHandle");
  decltype(&cuMemImportFromShareableHandle) take = driver_function<decltype(take)>("cuMemImportFromShareableHandle");

  bool is_whole() const {
    return MappingFunctions::is_whole() && range != nullptr && retain != nullptr && give != nullptr && take != nullptr;
  }
  static Result<const Driver*> get() {
    static const Driver driver;
    if (driver.is_whole()) return &driver;
    return Status(Code::kUnsupported, "CUDA's driver is too old to share memory that was mapped piece by piece");
  }
};

Status check_driver(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return {};
  return {Code::kUnsupported, fmt::format("{} failed (CUresult {})", call, static_cast<int>(result))};
}

/// A piece of memory, held for as long as this lives.
class Handle {
 public:
  Handle(const Driver& driver, CUmemGenericAllocationHandle handle) : driver_(driver), handle_(handle) {}
  ~Handle() { driver_.release(handle_); }
  Handle(const Handle&) = delete;
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  const Driver& driver_;
  CUmemGenericAllocationHandle handle_;
};

Result<base::Fd> export_piece(const Driver& driver, CUdeviceptr piece) {
  CUmemGenericAllocationHandle raw = 0;
  auto* const address = reinterpret_cast<void*>(static_cast<uintptr_t>(piece));  // NOLINT(performance-no-int-to-ptr)
  TUTTI_TRY(check_driver(driver.retain(&raw, address), "cuMemRetainAllocationHandle"));
  const Handle handle(driver, raw);
  int fd = -1;
  TUTTI_TRY(check_driver(driver.give(&fd, handle.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                         "cuMemExportToShareableHandle"));
  return base::Fd(fd);
}

}  // namespace

Result<Segments> export_segments(const void* begin, uint64_t bytes, int device) {
  const DeviceScope scope(device);
  TUTTI_ASSIGN(const Driver* const driver, Driver::get());
  Segments segments;
  const CUdeviceptr end = driver_pointer(begin) + bytes;
  for (CUdeviceptr at = driver_pointer(begin); at < end;) {
    CUdeviceptr piece = 0;
    size_t length = 0;
    TUTTI_TRY(check_driver(driver->range(&piece, &length, at), "cuMemGetAddressRange"));
    if (segments.files.size() == kMostSegments) {
      return Status(Code::kUnsupported, fmt::format("it lies in more than {} pieces", kMostSegments));
    }
    TUTTI_ASSIGN(base::Fd file, export_piece(*driver, piece));
    if (segments.files.empty()) segments.offset = at - piece;
    segments.files.push_back(std::move(file));
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    segments.begins.push_back(reinterpret_cast<const uint8_t*>(static_cast<uintptr_t>(piece)));
    segments.bytes.push_back(length);
    at = piece + length;
  }
  return segments;
}

Result<MappedSegments> MappedSegments::map(const base::FdPost::Parcel& pieces, int device) {
  const DeviceScope scope(device);
  const CaptureScope capture;
  TUTTI_ASSIGN(const Driver* const driver, Driver::get());
  uint64_t total = 0;
  for (const uint64_t bytes : pieces.notes) total += bytes;
  CUdeviceptr begin = 0;
  TUTTI_TRY(check_driver(driver->reserve(&begin, total, 0, 0, 0), "cuMemAddressReserve"));
  auto* const address = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(begin));  // NOLINT(performance-no-int-to-ptr)
  MappedSegments mapped;
  mapped.memory_ = std::unique_ptr<uint8_t, Unmap>(address, Unmap{total, 0, device});
  uint64_t& at = mapped.memory_.get_deleter().mapped;
  for (size_t i = 0; i < pieces.files.size(); ++i) {
    CUmemGenericAllocationHandle raw = 0;
    auto* const file = reinterpret_cast<void*>(static_cast<intptr_t>(pieces.files[i].get()));
    TUTTI_TRY(check_driver(driver->take(&raw, file, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                           "cuMemImportFromShareableHandle"));
    const Handle handle(*driver, raw);  // the mapping holds it, too
    TUTTI_TRY(check_driver(driver->map(begin + at, pieces.notes[i], 0, handle.get(), 0), "cuMemMap"));
    at += pieces.notes[i];
  }
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  TUTTI_TRY(check_driver(driver->set_access(begin, total, &access, 1), "cuMemSetAccess"));
  return mapped;
}

void MappedSegments::Unmap::operator()(uint8_t* memory) const {
  const auto driver = Driver::get();
  if (!driver.ok()) return;
  const DeviceScope scope(device);
  if (mapped > 0) (*driver)->unmap(driver_pointer(memory), mapped);
  (*driver)->free(driver_pointer(memory), reserved);
}

}  // namespace tutti::cuda
