// SPDX-License-Identifier: Apache-2.0
// Memory that the kit shares with the processes that it starts.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "base/fd.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {

/// A file of zero bytes in memory.
Result<base::Fd> make_shared_file(size_t bytes);
Result<void*> map_shared_file(int fd, size_t bytes);

/// A `State` of zero bytes, until the object goes.
template <class State>
class SharedMemory {
 public:
  SharedMemory() = default;
  static Result<SharedMemory> make() {
    TUTTI_ASSIGN(base::Fd file, make_shared_file(sizeof(State)));
    TUTTI_ASSIGN(SharedMemory memory, at(file.get()));
    memory.file_ = std::move(file);
    return memory;
  }
  /// In a started process, which has the file under this number.
  static Result<SharedMemory> at(int fd) {
    TUTTI_ASSIGN(void* const mapped, map_shared_file(fd, sizeof(State)));
    SharedMemory memory;
    memory.state_.reset(static_cast<State*>(mapped));
    return memory;
  }

  /// For Process::start(), of an object of make().
  int fd() const { return file_.get(); }
  State& operator*() const { return *state_; }
  State* operator->() const { return state_.get(); }

 private:
  struct Unmap {
    void operator()(State* state) const { munmap(state, sizeof(State)); }
  };
  base::Fd file_;
  std::unique_ptr<State, Unmap> state_;
};

}  // namespace tutti::tools::plugin_test
