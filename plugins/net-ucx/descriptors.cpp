// SPDX-License-Identifier: Apache-2.0
#include "descriptors.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <vector>

#include "line.h"

namespace tutti::net_ucx {
namespace {

/// Opens so many descriptors for a moment.
bool are_free(size_t count) {
  std::vector<Fd> taken;
  while (taken.size() < count) {
    if (!taken.emplace_back(eventfd(0, EFD_CLOEXEC)).valid()) return false;
  }
  return true;
}

}  // namespace

bool raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

Status require_descriptors(size_t count, std::string_view what) {
  if (are_free(count) || (raise_descriptor_limit() && are_free(count))) return {};
  return {Code::kUnsupported,
          fmt::format("UCX needs up to {} descriptors for {}, and fewer are free; raise the limit of open "
                      "files (ulimit -n)",
                      count, what)};
}

}  // namespace tutti::net_ucx
