// SPDX-License-Identifier: Apache-2.0
// Objects and forks. A child made by fork() has copies of its parent's objects, but none of the parent's threads. The
// child must therefore neither use nor destroy these objects.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "tutti/status.h"

namespace tutti::base {

namespace detail {
// Forks between the process that loaded this code and this process. Only the handler of fork() changes it, in a child
// that has one thread: a plain load sees the value.
inline uint64_t generation = 0;
}  // namespace detail

/// Counts forks from now on. Needed before the first Origin is asked. Any thread.
Status follow_forks();

/// The process that made an object. A child that was started by clone() without fork() is not noticed. Any thread.
class Origin {
 public:
  Origin();
  /// False in a forked child of the process that made this object.
  bool is_here() const { return generation_ == detail::generation; }
  /// The refusal of an object in a forked child. `what`: "the communicator".
  Status refusal(const char* what) const;

 private:
  uint64_t generation_;
  pid_t process_;
};

/// Keeps an object of the parent in a forked child: reachable, and never destroyed. Any thread.
void abandon(std::shared_ptr<void> object);

/// A lock that no other thread holds while the process forks, so that the child can take it. For a mutex that is never
/// destroyed. Any thread.
void hold_over_forks(std::mutex& mutex);
/// A new mutex that is held over forks and never destroyed. For one static reference each.
std::mutex& process_mutex();

}  // namespace tutti::base
