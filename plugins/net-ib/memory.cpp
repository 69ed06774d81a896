// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <fmt/format.h>

#include "tutti/plugin/types.h"

namespace tutti::net_ib {

Result<void*> register_range(Link& link, void* address, uint64_t bytes, uint32_t memory) {
  const Port& port = link.port();
  if (memory != TUTTI_MEMORY_HOST && memory != TUTTI_MEMORY_CUDA)
    return Status(Code::kInvalidArgument,
                  fmt::format("memory of kind {}; host and CUDA memory can be registered", memory));
  if ((port.device->memory() & memory) == 0) {
    return Status(Code::kUnsupported,
                  fmt::format("{} cannot register memory of GPUs: load the kernel module nvidia_peermem", port.name));
  }
  TUTTI_ASSIGN(Registration* const made,
               port.device->registrations().add(address, bytes, memory, link.shared().settings.relaxed_ordering));
  return static_cast<void*>(made);
}

Result<void*> register_dmabuf(Link& link, void* address, uint64_t bytes, uint64_t offset, int fd) {
  const Port& port = link.port();
  TUTTI_ASSIGN(Registration* const made, port.device->registrations().add_dmabuf(
                                             address, bytes, offset, fd, link.shared().settings.relaxed_ordering));
  return static_cast<void*>(made);
}

Status deregister(Link& link, void* registration) {
  if (registration != nullptr) link.port().device->registrations().remove(static_cast<Registration*>(registration));
  return {};
}

Result<uint32_t> key_of(void* raw, const void* address, uint64_t bytes, bool remote) {
  if (bytes == 0) return 0u;
  const auto* const registration = static_cast<const Registration*>(raw);
  if (registration != nullptr && registration->contains(address, bytes))
    return remote ? registration->region->rkey : registration->region->lkey;
  return Status(Code::kInvalidArgument,
                fmt::format("{} bytes at {} are not inside the registered memory of the request", bytes, address));
}

Status check_size(const Link& link, uint64_t bytes) {
  const uint64_t most = link.port().attributes.max_msg_sz;
  if (bytes <= most) return {};
  return {Code::kInvalidArgument,
          fmt::format("a message of {} bytes; {} carries {} at most", bytes, link.port().name, most)};
}

}  // namespace tutti::net_ib
