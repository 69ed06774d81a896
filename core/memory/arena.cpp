// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::memory {
namespace {

Status system_error(std::string_view what, std::string_view remedy) {
  return Status(Code::kSystem, fmt::format("{}: {}; {}", what, std::strerror(errno), remedy));
}

Result<uint8_t*> map(int descriptor, uint64_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) {
    return system_error(fmt::format("cannot map {} bytes of shared memory", bytes), "lower shm.slots or shm.slot_size");
  }
  return static_cast<uint8_t*>(base);
}

}  // namespace

Result<Arena> Arena::create(uint64_t bytes) {
  Arena arena;
  arena.address_.process = getpid();
  arena.address_.bytes = bytes + kHeaderBytes;
  arena.address_.descriptor = memfd_create("tutti", MFD_CLOEXEC);
  if (arena.address_.descriptor < 0)
    return system_error("cannot make shared memory (memfd_create)", "check the limit of open files");
  arena.owns_descriptor_ = true;
  if (ftruncate(arena.address_.descriptor, static_cast<off_t>(arena.address_.bytes)) != 0) {
    return system_error(fmt::format("cannot size shared memory to {} bytes", arena.address_.bytes),
                        "lower shm.slots or shm.slot_size");
  }
  TUTTI_ASSIGN(arena.base_, map(arena.address_.descriptor, arena.address_.bytes));
  if (getrandom(&arena.address_.token, sizeof arena.address_.token, 0) != sizeof arena.address_.token) {
    return system_error("getrandom failed", "check the system's random source");
  }
  std::memcpy(arena.base_, &arena.address_.token, sizeof arena.address_.token);
  return arena;
}

Result<Arena> Arena::open(const ArenaAddress& address) {
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) {
    return system_error(fmt::format("cannot open the shared memory of process {} ({})", address.process, path),
                        "ranks of one host must run as one user in one pid namespace, or set transport to net");
  }
  Arena arena;
  arena.address_ = address;
  auto base = map(descriptor, address.bytes);
  close(descriptor);
  if (!base.ok()) return base.status();
  arena.base_ = *base;
  if (std::memcmp(arena.base_, &address.token, sizeof address.token) != 0) {
    return Status(Code::kRemote, fmt::format("{} is not the shared memory that was announced; did process {} end?",
                                             path, address.process));
  }
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : address_(other.address_),
      base_(std::exchange(other.base_, nullptr)),
      owns_descriptor_(std::exchange(other.owns_descriptor_, false)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(address_, other.address_);
  std::swap(base_, other.base_);
  std::swap(owns_descriptor_, other.owns_descriptor_);
  return *this;
}

Arena::~Arena() {
  if (base_ != nullptr) munmap(base_, address_.bytes);
  seal();
}

void Arena::seal() {
  if (std::exchange(owns_descriptor_, false)) close(address_.descriptor);
}

}  // namespace tutti::memory
