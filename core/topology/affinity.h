// SPDX-License-Identifier: Apache-2.0
// Processors of a NUMA node: masks as the kernel writes them, and a thread bound to them for a while.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/document.h"
#include "tutti/status.h"

namespace tutti::topology {

/// Numbers of processors, ascending.
using CpuSet = std::vector<int>;

/// Groups of up to eight hexadecimal digits, the highest first: "000000ff,ffff0000". Empty text is the empty set.
/// kInvalidArgument for anything else.
Result<CpuSet> parse_cpu_mask(std::string_view mask);
/// The mask of a set in groups of eight digits; empty for the empty set.
std::string format_cpu_mask(const CpuSet& cpus);
CpuSet intersect(const CpuSet& a, const CpuSet& b);
CpuSet unite(const CpuSet& a, const CpuSet& b);
/// The processors on which the calling thread may run now; empty if the kernel does not report them.
CpuSet current_affinity();

/// While it lives, the thread that made it runs on the processors of `cpu` that it may use, or on all of them. The
/// thread's memory comes from there if there is any. Threads that it starts inherit both. Afterwards, everything is as
/// before. If the processors have none in common or the kernel refuses, nothing changes and the log (info) gives the
/// reason. Must end on the thread on which it began.
class AffinityScope {
 public:
  enum class Memory { kAnywhere, kPreferred };
  /// The processors that the thread may use before: a limit, or not.
  enum class Mask { kObey, kIgnore };

  explicit AffinityScope(const Cpu& cpu, Memory memory = Memory::kPreferred, Mask mask = Mask::kObey);
  AffinityScope(const AffinityScope&) = delete;
  AffinityScope& operator=(const AffinityScope&) = delete;
  ~AffinityScope();

  /// Whether the thread is bound by this scope.
  bool bound() const { return !before_.empty(); }
  /// Whether its memory comes from the node by this scope.
  bool prefers_memory() const { return !nodes_before_.empty(); }

 private:
  void prefer_memory_of(int numa);

  CpuSet before_;                            // empty: not bound
  int policy_before_ = 0;                    // mode and flags
  std::vector<unsigned long> nodes_before_;  // empty: policy not changed
};

}  // namespace tutti::topology
