// SPDX-License-Identifier: Apache-2.0
#include "base/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/fd.h"
#include "tutti/sdk/descriptor_limit.h"

namespace tutti::base {

void widen_descriptor_table() {
  rlimit limit{};
  const Fd lowest(eventfd(0, EFD_CLOEXEC));  // about as many are open
  if (!lowest.valid() || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto open = static_cast<rlim_t>(lowest.get());
  const rlim_t room = std::min(limit.rlim_cur, std::max<rlim_t>(2 * open, kLeastDescriptorRoom));
  if (room <= open) return;
  const Fd highest(fcntl(lowest.get(), F_DUPFD_CLOEXEC, static_cast<int>(room - 1)));  // the kernel widens the table
}

Status descriptor_error(std::string_view what, int error) {
  const Status failure = system_error(what, error);
  return {failure.code(), fmt::format("{}{}", failure.text(), sdk::descriptor_remedy(error))};
}

}  // namespace tutti::base
