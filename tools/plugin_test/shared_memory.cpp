// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/shared_memory.h"

#include <unistd.h>

namespace tutti::tools::plugin_test {

Result<base::Fd> make_shared_file(size_t bytes) {
  base::Fd file(memfd_create("tutti-plugin-test", MFD_CLOEXEC));
  if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return base::system_error("cannot make the shared state");
  return file;
}

Result<void*> map_shared_file(int fd, size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return base::system_error("cannot map the shared state of the kit");
  return memory;
}

}  // namespace tutti::tools::plugin_test
