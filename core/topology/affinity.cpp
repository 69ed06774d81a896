// SPDX-License-Identifier: Apache-2.0
#include "topology/affinity.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <iterator>
#include <memory>

#include "base/fd.h"
#include "log/log.h"

namespace tutti::topology {
namespace {

constexpr int kMaxCpus = 1 << 16;
constexpr int kMaxNodes = 1024;  // MAX_NUMNODES of every kernel
constexpr int kGroupBits = 32;
constexpr int kLongBits = sizeof(unsigned long) * CHAR_BIT;

/// The kernel's set of processors, in as many bytes as this kernel needs.
class KernelSet {
 public:
  explicit KernelSet(int cpu_count) : set_(CPU_ALLOC(cpu_count)), bytes_(CPU_ALLOC_SIZE(cpu_count)) {
    CPU_ZERO_S(bytes_, set_.get());
  }
  cpu_set_t* get() { return set_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::unique_ptr<cpu_set_t, Free> set_;
  size_t bytes_;
};

bool set_affinity(const CpuSet& cpus) {
  KernelSet set(cpus.back() + 1);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), set.bytes(), set.get());
  return sched_setaffinity(0, set.bytes(), set.get()) == 0;
}

// glibc has no wrappers for these two calls. The kernel ignores the last of `kMaxNodes + 1` bits.
bool get_policy(int& policy, std::vector<unsigned long>& nodes) {
  nodes.assign(kMaxNodes / kLongBits, 0);
  return syscall(SYS_get_mempolicy, &policy, nodes.data(), kMaxNodes + 1, nullptr, 0) == 0;
}

bool set_policy(int policy, const std::vector<unsigned long>& nodes) {
  return syscall(SYS_set_mempolicy, policy, nodes.data(), kMaxNodes + 1) == 0;
}

}  // namespace

Result<CpuSet> parse_cpu_mask(std::string_view mask) {
  const auto wrong = [mask] {
    return Status(Code::kInvalidArgument, fmt::format("'{}' is no mask of processors: write groups of up to eight "
                                                      "hexadecimal digits, such as 000000ff,ffff0000",
                                                      mask));
  };
  CpuSet cpus;
  if (mask.empty()) return cpus;
  for (int first = 0;; first += kGroupBits) {  // the lowest processors stand last
    const size_t comma = mask.rfind(',');
    const std::string_view digits = mask.substr(comma + 1);  // npos + 1 is 0
    uint32_t bits = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), bits, 16);
    if (error != std::errc() || end != digits.end() || digits.size() > 8 || first >= kMaxCpus) return wrong();
    for (int bit = 0; bit < kGroupBits; ++bit) {
      if ((bits >> bit & 1) != 0) cpus.push_back(first + bit);
    }
    if (comma == std::string_view::npos) break;
    mask = mask.substr(0, comma);
  }
  return cpus;
}

std::string format_cpu_mask(const CpuSet& cpus) {
  if (cpus.empty()) return {};
  std::vector<uint32_t> groups(static_cast<size_t>(cpus.back() / kGroupBits) + 1);
  for (const int cpu : cpus) groups[static_cast<size_t>(cpu / kGroupBits)] |= 1u << cpu % kGroupBits;
  std::reverse(groups.begin(), groups.end());
  return fmt::format("{:08x}", fmt::join(groups, ","));
}

CpuSet intersect(const CpuSet& a, const CpuSet& b) {
  CpuSet both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return both;
}

CpuSet unite(const CpuSet& a, const CpuSet& b) {
  CpuSet all;
  std::ranges::set_union(a, b, std::back_inserter(all));
  return all;
}

CpuSet current_affinity() {
  for (int count = CPU_SETSIZE; count <= kMaxCpus; count *= 2) {  // a set too small for this kernel is EINVAL
    KernelSet set(count);
    if (sched_getaffinity(0, set.bytes(), set.get()) != 0) continue;
    CpuSet cpus;
    for (int cpu = 0; cpu < count; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), set.bytes(), set.get())) cpus.push_back(cpu);
    }
    return cpus;
  }
  return {};
}

AffinityScope::AffinityScope(const Cpu& cpu, Memory memory, Mask mask) {
  const Result<CpuSet> wanted = parse_cpu_mask(cpu.affinity);
  if (!wanted.ok()) {
    log::info("affinity: NUMA node {}: {}", cpu.numa, wanted.status().text());
    return;
  }
  CpuSet before = current_affinity();
  const CpuSet cpus = mask == Mask::kIgnore ? *wanted : intersect(*wanted, before);
  if (cpus.empty()) {
    log::info("affinity: this thread may use none of NUMA node {}'s processors ({}), only {}: not bound", cpu.numa,
              cpu.affinity.empty() ? "not known" : cpu.affinity, format_cpu_mask(before));
    return;
  }
  if (!set_affinity(cpus)) {
    log::info("affinity: not bound to NUMA node {}: {}", cpu.numa, base::errno_text(errno));
    return;
  }
  before_ = std::move(before);
  if (memory == Memory::kPreferred) prefer_memory_of(cpu.numa);
}

void AffinityScope::prefer_memory_of(int numa) {
  if (numa < 0 || numa >= kMaxNodes) return;
  std::vector<unsigned long> before;
  std::vector<unsigned long> wanted(kMaxNodes / kLongBits, 0);
  wanted[static_cast<size_t>(numa / kLongBits)] = 1ul << numa % kLongBits;
  if (!get_policy(policy_before_, before) || !set_policy(MPOL_PREFERRED, wanted)) {
    log::info("affinity: memory comes from anywhere, not from NUMA node {} first: {}", numa, base::errno_text(errno));
    return;
  }
  nodes_before_ = std::move(before);
}

AffinityScope::~AffinityScope() {
  if (prefers_memory() && !set_policy(policy_before_, nodes_before_)) {
    log::warn("affinity: the memory policy of before cannot be restored: {}", base::errno_text(errno));
  }
  if (bound() && !set_affinity(before_)) {
    log::warn("affinity: the processors of before cannot be restored: {}", base::errno_text(errno));
  }
}

}  // namespace tutti::topology
