// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <fmt/format.h>

#include <memory>

#include "tutti/plugin/types.h"

namespace tutti::net_ib {

namespace {

void remove_everywhere(Link& link, const Registered& registered) {
  for (size_t i = 0; i < link.rails().size(); ++i) {
    if (registered.rails[i] != nullptr) link.rails()[i]->port().device->registrations().remove(registered.rails[i]);
  }
}

/// Registers on the device of each rail. `add` returns Result<Registration*>.
template <class Add>
Result<void*> register_everywhere(Link& link, Add&& add) {
  auto registered = std::make_unique<Registered>();
  for (size_t i = 0; i < link.rails().size(); ++i) {
    Result<Registration*> made = add(*link.rails()[i]->port().device);
    if (!made.ok()) {
      remove_everywhere(link, *registered);
      return made.status();
    }
    registered->rails[i] = *made;
  }
  return static_cast<void*>(registered.release());
}

}  // namespace

Result<void*> register_range(Link& link, void* address, uint64_t bytes, uint32_t memory) {
  if (memory != TUTTI_MEMORY_HOST && memory != TUTTI_MEMORY_CUDA)
    return Status(Code::kInvalidArgument,
                  fmt::format("memory of kind {}; host and CUDA memory can be registered", memory));
  return register_everywhere(link, [&](Device& device) -> Result<Registration*> {
    if ((device.memory() & memory) != 0)
      return device.registrations().add(address, bytes, memory, link.shared().settings.relaxed_ordering);
    return Status(
        Code::kUnsupported,
        fmt::format("{} cannot register memory of GPUs: load the kernel module nvidia_peermem", device.name()));
  });
}

Result<void*> register_dmabuf(Link& link, void* address, uint64_t bytes, uint64_t offset, int fd) {
  return register_everywhere(link, [&](Device& device) {
    return device.registrations().add_dmabuf(address, bytes, offset, fd, link.shared().settings.relaxed_ordering);
  });
}

Status deregister(Link& link, void* raw) {
  const std::unique_ptr<Registered> registered(static_cast<Registered*>(raw));
  if (registered != nullptr) remove_everywhere(link, *registered);
  return {};
}

Result<const Registered*> find_registered(void* raw, const void* address, uint64_t bytes) {
  const auto* const registered = static_cast<const Registered*>(raw);
  if (bytes == 0) return static_cast<const Registered*>(nullptr);
  if (registered != nullptr && registered->rails[0]->contains(address, bytes)) return registered;
  return Status(Code::kInvalidArgument,
                fmt::format("{} bytes at {} are not inside the registered memory of the request", bytes, address));
}

Status check_size(const Link& link, uint64_t bytes) {
  for (const auto& rail : link.rails()) {
    const uint64_t most = rail->port().attributes.max_msg_sz;
    if (bytes > most)
      return {Code::kInvalidArgument,
              fmt::format("a message of {} bytes; {} carries {} at most", bytes, rail->port().name, most)};
  }
  return {};
}

}  // namespace tutti::net_ib
