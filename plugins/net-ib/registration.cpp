// SPDX-License-Identifier: Apache-2.0
#include "registration.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

/// Reads are allowed because `flush` reads arrived data.
int access(bool relaxed_ordering) {
  const unsigned relaxed = relaxed_ordering ? static_cast<unsigned>(IBV_ACCESS_RELAXED_ORDERING) : 0u;
  return static_cast<int>(static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE) |
                          static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE) |
                          static_cast<unsigned>(IBV_ACCESS_REMOTE_READ) | relaxed);
}

std::string limit_of_locked_memory() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "is unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "is unlimited";
  return fmt::format("is {} KiB", limit.rlim_cur / 1024);
}

std::string remedy(int error, uint32_t memory) {
  if (memory == TUTTI_MEMORY_DMABUF) {
    return "the driver of the device must support dmabuf, and the GPU must be able to reach the device";
  }
  if (memory == TUTTI_MEMORY_CUDA) {
    return "memory of GPUs needs the kernel module nvidia_peermem (modprobe nvidia_peermem), or dmabuf";
  }
  if (error == ENOMEM) {
    return fmt::format(
        "the limit of locked memory {}; raise it (ulimit -l unlimited, LimitMEMLOCK=infinity, docker run "
        "--ulimit memlock=-1)",
        limit_of_locked_memory());
  }
  if (error == EFAULT) return "the range is not mapped, or may not be written";
  return "the kernel log (dmesg) may say more";
}

Status refusal(uint64_t address, uint64_t bytes, uint32_t memory, int error) {
  const char* const kind = memory == TUTTI_MEMORY_HOST ? "the host" : "a GPU";
  return {Code::kSystem, fmt::format("cannot register {} bytes of {} at {:#x}: {}; {}", bytes, kind, address,
                                     errno_text(error), remedy(error, memory))};
}

}  // namespace

/// The registration with the largest begin that is not behind the range.
Registration* Registrations::find(uint64_t begin, uint64_t bytes, uint32_t memory) {
  auto after = by_begin_.upper_bound(begin);
  if (after == by_begin_.begin()) return nullptr;
  Registration& found = std::prev(after)->second;
  const bool holds = found.memory == memory && found.contains(reinterpret_cast<const void*>(begin), bytes);
  return holds ? &found : nullptr;
}

Registration* Registrations::keep(MemoryRegion region, uint64_t begin, uint64_t bytes, uint32_t memory) {
  return &by_begin_.emplace(begin, Registration{std::move(region), begin, bytes, memory, 1})->second;
}

Result<Registration*> Registrations::add(void* address, uint64_t bytes, uint32_t memory, bool relaxed_ordering) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  const std::lock_guard lock(mutex_);
  if (Registration* const shared = find(begin, bytes, memory)) {
    ++shared->users;
    return shared;
  }
  MemoryRegion region(ibv_reg_mr(domain_, address, bytes, access(relaxed_ordering)));
  if (region == nullptr) return refusal(begin, bytes, memory, errno);
  return keep(std::move(region), begin, bytes, memory);
}

Result<Registration*> Registrations::add_dmabuf(void* address, uint64_t bytes, uint64_t offset, int fd,
                                                bool relaxed_ordering) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  const std::lock_guard lock(mutex_);
  MemoryRegion region(ibv_reg_dmabuf_mr(domain_, offset, bytes, begin, fd, access(relaxed_ordering)));
  if (region == nullptr) return refusal(begin, bytes, TUTTI_MEMORY_DMABUF, errno);
  return keep(std::move(region), begin, bytes, TUTTI_MEMORY_DMABUF);
}

void Registrations::remove(Registration* registration) {
  const std::lock_guard lock(mutex_);
  if (--registration->users > 0) return;
  auto [one, end] = by_begin_.equal_range(registration->begin);
  while (one != end && &one->second != registration) ++one;
  if (one != end) by_begin_.erase(one);
}

size_t Registrations::count() const {
  const std::lock_guard lock(mutex_);
  return by_begin_.size();
}

}  // namespace tutti::net_ib
