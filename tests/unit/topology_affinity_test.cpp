// SPDX-License-Identifier: Apache-2.0
#include "topology/affinity.h"

#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <random>
#include <thread>

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

CpuSet parsed(std::string_view mask) {
  const auto cpus = parse_cpu_mask(mask);
  EXPECT_TRUE(cpus.ok()) << cpus.status().to_string();
  return cpus.ok() ? *cpus : CpuSet{-1};
}

Cpu node(const CpuSet& cpus, int numa = 0) {
  Cpu cpu;
  cpu.numa = numa;
  cpu.affinity = format_cpu_mask(cpus);
  return cpu;
}

/// The policy and nodes of the calling thread, asked of the kernel.
struct Policy {
  int mode = -1;
  std::array<unsigned long, 16> nodes = {};
  Policy() { syscall(SYS_get_mempolicy, &mode, nodes.data(), 1025, nullptr, 0); }
  friend bool operator==(const Policy&, const Policy&) = default;
};

TEST(CpuMask, ReadsWhatKernelsWrite) {
  EXPECT_THAT(parsed("3"), ElementsAre(0, 1));
  EXPECT_THAT(parsed("00000001,80000000"), ElementsAre(31, 32));
  EXPECT_THAT(parsed("1,00000000,00000002"), ElementsAre(1, 64));
  EXPECT_THAT(parsed("0"), IsEmpty());
  EXPECT_THAT(parsed(""), IsEmpty());
  EXPECT_EQ(parsed("000000ff,ffff0000,00ffffff").size(), 48u);
}

TEST(CpuMask, RefusesOtherTexts) {
  for (const char* text : {",", "ff,", ",ff", "f,,f", "0x3", "g", "123456789", "-1", " 1", "1 "}) {
    EXPECT_EQ(parse_cpu_mask(text).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_FALSE(parse_cpu_mask("1" + std::string(8192, ',')).ok());
  std::string too_many = "1";
  for (int group = 0; group < 3000; ++group) too_many += ",00000000";
  EXPECT_FALSE(parse_cpu_mask(too_many).ok());
}

TEST(CpuMask, WritesWhatItReads) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    CpuSet cpus;
    for (int cpu = 0; cpu < 300; ++cpu) {
      if (random() % 5 == 0) cpus.push_back(cpu);
    }
    EXPECT_EQ(parsed(format_cpu_mask(cpus)), cpus);
  }
  EXPECT_EQ(format_cpu_mask({0, 33}), "00000002,00000001");
  EXPECT_EQ(format_cpu_mask({}), "");
}

TEST(Affinity, BindsAndRestoresExactly) {
  const CpuSet before = current_affinity();
  const Policy policy_before;
  ASSERT_FALSE(before.empty());
  {
    const AffinityScope scope(node({before.back(), before.back() + 1}));
    EXPECT_TRUE(scope.bound());
    EXPECT_THAT(current_affinity(), ElementsAre(before.back())) << "only what it might use before";
    if (scope.prefers_memory()) {
      EXPECT_EQ(Policy().mode, MPOL_PREFERRED);
      EXPECT_EQ(Policy().nodes[0], 1u);
    }
  }
  EXPECT_EQ(current_affinity(), before);
  EXPECT_EQ(Policy(), policy_before);
}

TEST(Affinity, IgnoresTheMaskIfAsked) {
  const CpuSet before = current_affinity();
  if (before.size() < 2) GTEST_SKIP() << "a mask needs a second processor outside of it";
  const AffinityScope narrow(node({before.front()}));
  {
    const AffinityScope obeys(node({before.back()}));
    EXPECT_FALSE(obeys.bound());
    const AffinityScope ignores(node({before.back()}), AffinityScope::Memory::kPreferred, AffinityScope::Mask::kIgnore);
    EXPECT_TRUE(ignores.bound());
    EXPECT_THAT(current_affinity(), ElementsAre(before.back()));
  }
  EXPECT_THAT(current_affinity(), ElementsAre(before.front()));
}

TEST(Affinity, RestoresThePolicyThatWas) {
  const unsigned long nodes = 1;
  if (syscall(SYS_set_mempolicy, MPOL_INTERLEAVE | MPOL_F_STATIC_NODES, &nodes, 65) != 0) {
    GTEST_SKIP() << "this kernel lets nobody choose where memory comes from";
  }
  const Policy before;
  {
    const AffinityScope scope(node(current_affinity()));
    EXPECT_TRUE(scope.prefers_memory());
    EXPECT_NE(Policy(), before);
    {
      const AffinityScope inner(node(current_affinity()), AffinityScope::Memory::kAnywhere);
      EXPECT_TRUE(inner.bound());
      EXPECT_FALSE(inner.prefers_memory());
    }
    EXPECT_EQ(Policy().mode, MPOL_PREFERRED);
  }
  EXPECT_EQ(Policy(), before);
  syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0);
}

TEST(Affinity, ChangesNothingWhereNothingIsCommon) {
  const CpuSet before = current_affinity();
  const Policy policy_before;
  Cpu wrong = node({0});
  wrong.affinity = "no mask";
  for (const Cpu& cpu : {node({before.back() + 1}), node({}), wrong}) {
    const AffinityScope scope(cpu);
    EXPECT_FALSE(scope.bound());
    EXPECT_FALSE(scope.prefers_memory());
    EXPECT_EQ(current_affinity(), before);
    EXPECT_EQ(Policy(), policy_before);
  }
  EXPECT_EQ(current_affinity(), before);
}

TEST(Affinity, ANodeThatIsNotThereKeepsItsMemoryPolicy) {
  const Policy before;
  const AffinityScope scope(node(current_affinity(), 1023));
  EXPECT_TRUE(scope.bound());
  EXPECT_FALSE(scope.prefers_memory());
  EXPECT_EQ(Policy(), before);
}

TEST(Affinity, OfOneThreadAndThoseItStarts) {
  const CpuSet all = current_affinity();
  std::thread([&] {
    const AffinityScope scope(node({all.front()}));
    std::jthread([&] { EXPECT_THAT(current_affinity(), ElementsAre(all.front())); });
  }).join();
  EXPECT_EQ(current_affinity(), all);
  const AffinityScope scope(node({all.front()}));
  std::jthread([&] { EXPECT_THAT(current_affinity(), ElementsAre(all.front())) << "inherited"; });
}

}  // namespace
}  // namespace tutti::topology
