// SPDX-License-Identifier: Apache-2.0
#include "unit/private_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

namespace tutti::test {
namespace {

uint8_t* map(uint64_t bytes, int protection, int fd) {
  void* const memory = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  return static_cast<uint8_t*>(memory);
}

}  // namespace

PrivateMemory::PrivateMemory(uint64_t bytes) : bytes_(bytes), fd_(memfd_create("private", MFD_CLOEXEC)) {
  if (!fd_.valid() || ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
    throw std::runtime_error("memfd_create failed");
  }
  view_ = map(bytes, PROT_NONE, fd_.get());
  alias_ = map(bytes, PROT_READ | PROT_WRITE, fd_.get());
}

PrivateMemory::~PrivateMemory() {
  munmap(view_, bytes_);
  munmap(alias_, bytes_);
}

base::Fd PrivateMemory::exported() const {
  return base::Fd(fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
}

bool PrivateMemory::is_exported_by(int fd) const {
  struct stat own {
  }, other{};
  return fstat(fd_.get(), &own) == 0 && fstat(fd, &other) == 0 && own.st_dev == other.st_dev &&
         own.st_ino == other.st_ino;
}

}  // namespace tutti::test
