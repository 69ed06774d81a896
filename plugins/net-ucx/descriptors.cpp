// SPDX-License-Identifier: Apache-2.0
#include "descriptors.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <vector>

#include "line.h"
#include "tutti/sdk/descriptor_limit.h"

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

Status require_descriptors(size_t count, std::string_view what) {
  if (are_free(count) || (sdk::raise_descriptor_limit() && are_free(count))) return {};
  return {Code::kUnsupported,
          fmt::format("UCX needs up to {} descriptors for {}, and fewer are free; raise the limit of open "
                      "files (ulimit -n)",
                      count, what)};
}

}  // namespace tutti::net_ucx
