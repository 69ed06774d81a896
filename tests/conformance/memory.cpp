// SPDX-License-Identifier: Apache-2.0
// Registrations of the mock network. A dmabuf of real GPUs cannot be mapped by mmap; a dmabuf of pretended_gpu.cpp can.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "conformance/mock.h"
#include "tutti/plugin/network.h"

namespace tutti::mock {

int32_t register_memory(void* raw, void* address, uint64_t /*bytes*/, uint32_t memory, void** registration) {
  if (memory != TUTTI_MEMORY_HOST) {
    return static_cast<Connection*>(raw)->context->fail(TUTTI_UNSUPPORTED, "only memory of the host can be registered");
  }
  auto made = std::make_unique<Registration>();
  made->begin = static_cast<uint8_t*>(address);
  *registration = made.release();
  return TUTTI_OK;
}

int32_t register_dmabuf(void* raw, void* address, uint64_t bytes, uint64_t offset, int32_t fd, void** registration) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) {
    return static_cast<Connection*>(raw)->context->fail(TUTTI_UNSUPPORTED, "the dmabuf cannot be mapped");
  }
  auto made = std::make_unique<Registration>();
  made->begin = static_cast<uint8_t*>(address);
  made->mapped = static_cast<uint8_t*>(mapped);
  made->held.resize(bytes);
  *registration = made.release();
  return TUTTI_OK;
}

int32_t deregister_memory(void* /*connection*/, void* registration) {
  const std::unique_ptr<Registration> owned(static_cast<Registration*>(registration));
  if (owned->mapped != nullptr) munmap(owned->mapped, owned->held.size());
  return TUTTI_OK;
}

int32_t flush(void* raw, uint32_t count, void* const* addresses, const uint64_t* bytes, void* const* registrations,
              void** /*request*/) {
  if (static_cast<Connection*>(raw)->context->has(Fault::kMissingFlush)) return TUTTI_OK;
  for (uint32_t i = 0; i < count; ++i) {
    const auto& from = *static_cast<const Registration*>(registrations[i]);
    const uint64_t offset = from.offset(addresses[i]);
    if (from.mapped != nullptr) std::memcpy(from.mapped + offset, from.held.data() + offset, bytes[i]);
  }
  return TUTTI_OK;
}

uint8_t* source_of(const void* address, const void* registration) {
  const auto* const of = static_cast<const Registration*>(registration);
  if (of != nullptr && of->mapped != nullptr) return of->mapped + of->offset(address);
  return static_cast<uint8_t*>(const_cast<void*>(address));
}

uint8_t* target_of(void* address, void* registration) {
  auto* const of = static_cast<Registration*>(registration);
  if (of != nullptr && of->mapped != nullptr) return of->held.data() + of->offset(address);
  return static_cast<uint8_t*>(address);
}

}  // namespace tutti::mock
