// SPDX-License-Identifier: Apache-2.0
// Hierarchies of machines: which the algorithm `hier` takes, and why it declines the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program/verify/verify.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using program::verify;
using testing::HasSubstr;

/// Ranks of one machine need not follow each other.
TEST(Hier, TakesInterleavedMachines) {
  const Algorithm hier("hier");
  Connected connected(hier, {0, 1, 2, 1, 0, 2, 2, 0, 1});
  for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
    for (uint32_t variant = 0; variant < hier.variants().size(); ++variant) {
      if (!hier.variants()[variant].can(collective)) continue;
      const auto plans = connected.plans(collective, variant, program::has_root(Collective(collective)) ? 4 : 0);
      if (hier.variants()[variant].name == "doubling") {
        EXPECT_THAT(plans.status().text(), HasSubstr("needs 4, 8, 16, ... machines"));
        continue;
      }
      ASSERT_TRUE(plans.ok()) << plans.status().to_string();
      EXPECT_TRUE(verify(*plans).ok()) << verify(*plans).to_string();
    }
  }
}

TEST(Hier, DeclinesWithAReason) {
  const Algorithm hier("hier");
  const auto text = [&](const NodeOfRank& nodes, uint32_t variant) {
    const Status status = Connected(hier, nodes).plans(TUTTI_ALL_REDUCE, variant).status();
    EXPECT_EQ(status.code(), Code::kUnsupported);
    return std::string(status.text());
  };
  EXPECT_THAT(text({0, 0, 0}, 0), HasSubstr("two machines or more"));
  EXPECT_THAT(text({0, 0, 1}, 0), HasSubstr("equal numbers of ranks"));
  EXPECT_THAT(text({0, 1, 2}, 0), HasSubstr("ring and direct do the same"));
  EXPECT_THAT(text({0, 0, 1, 1}, 1), HasSubstr("needs 4, 8, 16, ... machines"));
  EXPECT_THAT(text({0, 0, 1, 1}, 2), HasSubstr("three machines or more"));
}

}  // namespace
}  // namespace tutti::test
