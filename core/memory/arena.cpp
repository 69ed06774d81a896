// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/file.h"
#include "base/fork.h"

namespace tutti::memory {
namespace {

Status refused(std::string_view what, std::string_view remedy) {
  const Status status = base::system_error(what);
  return {status.code(), fmt::format("{}; {}", status.text(), remedy)};
}

}  // namespace

/// The mappings of this process, of its own arenas and of those of peers, by token. A process whose threads are many
/// ranks would else map each arena of a peer for each rank: the system limits mappings (vm.max_map_count).
class Arena::InProcess {
 public:
  static void add(uint64_t token, const std::shared_ptr<Mapping>& mapping) {
    const std::lock_guard lock(mutex());
    auto& all = mappings();
    std::erase_if(all, [](const auto& entry) { return entry.second.expired(); });
    all[token] = mapping;
  }
  static std::shared_ptr<Mapping> find(uint64_t token) {
    const std::lock_guard lock(mutex());
    const auto found = mappings().find(token);
    return found == mappings().end() ? nullptr : found->second.lock();
  }

 private:
  static std::mutex& mutex() {
    static std::mutex& instance = base::process_mutex();
    return instance;
  }
  static std::map<uint64_t, std::weak_ptr<Mapping>>& mappings() {
    static std::map<uint64_t, std::weak_ptr<Mapping>> instance;
    return instance;
  }
};

Arena::Mapping::~Mapping() {
  if (base != nullptr) munmap(base, bytes);
}

Result<std::shared_ptr<Arena::Mapping>> Arena::map(int descriptor, uint64_t bytes) {
  auto mapping = std::make_shared<Mapping>();
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) {
    return refused(fmt::format("cannot map {} bytes of shared memory", bytes), "lower shm.slots or shm.slot_size");
  }
  mapping->base = static_cast<uint8_t*>(base);
  mapping->bytes = bytes;
  return mapping;
}

Result<Arena> Arena::create(uint64_t bytes) {
  Arena arena;
  ArenaAddress& address = arena.address_;
  address.process = getpid();
  address.bytes = bytes + kHeaderBytes;
  arena.file_ = base::Fd(memfd_create("tutti", MFD_CLOEXEC));
  if (!arena.file_.valid()) return refused("cannot make shared memory (memfd_create)", "check the limit of open files");
  address.descriptor = arena.file_.get();
  // The limit of file sizes holds for memory files, too.
  if (const Status sized = base::resize(arena.file_, address.bytes, "shared memory"); !sized.ok()) {
    return Status(sized.code(), fmt::format("{}, or lower shm.slots or shm.slot_size", sized.text()));
  }
  TUTTI_ASSIGN(arena.mapping_, map(address.descriptor, address.bytes));
  if (getrandom(&address.token, sizeof address.token, 0) != sizeof address.token) {
    return refused("getrandom failed", "check the system's random source");
  }
  std::memcpy(arena.mapping_->base, &address.token, sizeof address.token);
  InProcess::add(address.token, arena.mapping_);
  return arena;
}

Result<Arena> Arena::open(const ArenaAddress& address) {
  Arena arena;
  arena.address_ = address;
  arena.mapping_ = InProcess::find(address.token);
  if (arena.mapping_ != nullptr) return arena;
  const std::string path = fmt::format("/proc/{}/fd/{}", address.process, address.descriptor);
  const base::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) {
    return refused(fmt::format("cannot open the shared memory of process {} ({})", address.process, path),
                   "ranks of one host must run as one user in one pid namespace, or set transport to net");
  }
  TUTTI_ASSIGN(arena.mapping_, map(file.get(), address.bytes));
  if (std::memcmp(arena.mapping_->base, &address.token, sizeof address.token) != 0) {
    return Status(Code::kRemote, fmt::format("{} is not the shared memory that was announced; did process {} end?",
                                             path, address.process));
  }
  InProcess::add(address.token, arena.mapping_);
  return arena;
}

}  // namespace tutti::memory
