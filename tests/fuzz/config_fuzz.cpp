// SPDX-License-Identifier: Apache-2.0
// Any bytes as a job file: it loads, or says why not.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "config/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("job.yaml", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) std::abort();

  const auto config = tutti::config::Config::load({"", path, {}, {}});
  if (!config.ok()) {
    if (!config.status().text().starts_with(path)) std::abort();  // no place
    return 0;
  }
  if (config->agreement().empty() || config->items().empty()) std::abort();
  return 0;
}
