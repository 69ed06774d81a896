// SPDX-License-Identifier: Apache-2.0
// The clock of every deadline.
#pragma once

#include <chrono>
#include <string>

namespace tutti::base {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Milliseconds = std::chrono::milliseconds;

/// The deadline that never comes.
inline constexpr Time kNever = Time::max();

/// The moment `duration` from now.
inline Time time_in(Clock::duration duration) {
  return Clock::now() + duration;
}

/// The time until `deadline` in whole milliseconds, rounded up and never negative; at most `limit`, which must be below
/// a day. Fits the timeout of poll().
Milliseconds left_until(Time deadline, Milliseconds limit = std::chrono::hours(23));

/// "30 s", "1.5 s", "200 ms".
std::string to_text(Milliseconds duration);

}  // namespace tutti::base
