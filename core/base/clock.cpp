// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::base {

Milliseconds left_until(Time deadline, Milliseconds limit) {
  const Time now = Clock::now();
  if (deadline <= now) return Milliseconds(0);
  if (deadline - now >= limit) return limit;
  return std::chrono::ceil<Milliseconds>(deadline - now);
}

std::string to_text(Milliseconds duration) {
  if (duration.count() < 1000) return fmt::format("{} ms", duration.count());
  return fmt::format("{:.3g} s", static_cast<double>(duration.count()) / 1000);
}

}  // namespace tutti::base
