// SPDX-License-Identifier: Apache-2.0
// The effect of an entry on the table tuner: the built plugin with a table of this test.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "plugin/loader.h"
#include "tutti/sdk/tuner.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

constexpr double kMeasured = 12.5;

tutti_str borrow(const std::string& text) {
  return {text.data(), text.size()};
}

class TableTunerTest : public testing::Test {
 protected:
  /// Follows a table with these entries for all_gather, measured with 4 ranks.
  void follow(const std::string& entries, uint32_t ranks = 4) {
    const std::string file = fmt::format("{}tutti-table-{}.yaml", testing::TempDir(), getpid());
    std::ofstream(file) << fmt::format(
        "tutti_table: 1\ntutti_version: {}\ngpu: \"\"\nranks: {}\nnodes: 1\ncollectives:\n  all_gather:\n{}",
        TUTTI_VERSION, ranks, entries);
    config_ = required(config::Config::load({"", "", {}, {{"settings.tuner.table.file", file}}}));
    const std::string path = TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-tuner-table.so";
    plugin_ = required(plugin::Plugin::open(required(plugin::Image::load(plugin::Kind::kTuner, path, path)), config_));
    const tutti_topology topology = topology_of(nodes_);
    ASSERT_EQ(ops()->create(plugin_->self(), &topology, &instance_), TUTTI_OK) << plugin::take_failure_text();
    std::filesystem::remove(file);
  }
  void TearDown() override {
    if (instance_ != nullptr) ops()->destroy(instance_);
  }
  static std::string entry(const char* protocol, const char* more = "", const char* algorithm = "direct") {
    return fmt::format("    - {{max_bytes: unlimited, algorithm: {}, protocol: {}, channels: 3, measured_us: {}{}}}\n",
                       algorithm, protocol, kMeasured, more);
  }

  /// Both protocols of one algorithm, and one protocol of a second algorithm. The model finds `fast` fastest.
  std::vector<tutti_candidate> choose(bool registered, uint64_t bytes = 1 << 20, bool has_fast = true) {
    std::vector<tutti_candidate> candidates;
    const auto add = [&](const std::string& algorithm, const std::string& protocol, double hops, bool needs) {
      tutti_candidate candidate{};
      candidate.struct_size = sizeof candidate;
      candidate.max_channels = 2;
      candidate.algorithm = borrow(algorithm);
      candidate.protocol = borrow(protocol);
      candidate.needs_registered = needs ? 1 : 0;
      candidate.hops[TUTTI_LINK_P2P] = static_cast<uint32_t>(hops);
      candidate.wire[TUTTI_LINK_P2P] = 1e-6;
      for (double& efficiency : candidate.protocol_efficiency) efficiency = 1;
      candidates.push_back(candidate);
    };
    static const std::string direct = "direct", ring = "ring", simple = "simple", copy = "copy", fast = "fast";
    add(direct, simple, 9, false);
    add(ring, fast, 1, false);
    add(direct, copy, 2, true);
    if (!registered) candidates[kCopy].predicted_us = -1;  // the host has excluded it
    if (!has_fast) candidates[kFast].predicted_us = -1;
    tutti_call call{};
    call.struct_size = sizeof call;
    call.collective = TUTTI_ALL_GATHER;
    call.block_bytes = bytes;
    call.blocks = 1;
    call.registered = registered ? 1 : 0;
    const auto pointers = sdk::pointers_to(candidates);
    EXPECT_EQ(ops()->choose(instance_, &call, pointers.data(), static_cast<uint32_t>(pointers.size())), TUTTI_OK);
    return candidates;
  }
  enum { kSimple, kFast, kCopy };

 private:
  const tutti_tuner_ops* ops() const { return plugin_->ops<tutti_tuner_ops>(); }
  const NodeOfRank nodes_ = split(4, 1);
  config::Config config_ = required(config::Config::load({}));
  std::shared_ptr<plugin::Plugin> plugin_;
  void* instance_ = nullptr;
};

TEST_F(TableTunerTest, WhatTheHostExcludesStaysExcluded) {
  follow(entry("simple"));
  const auto candidates = choose(false, 1 << 20, false);
  EXPECT_EQ(candidates[kSimple].predicted_us, kMeasured);
  EXPECT_EQ(candidates[kFast].predicted_us, -1);
}

TEST_F(TableTunerTest, AnEntryWinsWithItsTimeAndItsChannels) {
  follow(entry("simple"));
  const auto candidates = choose(false);
  EXPECT_EQ(candidates[kSimple].predicted_us, kMeasured);
  EXPECT_EQ(candidates[kSimple].channels, 2u) << "as many as there may be";
  EXPECT_GT(candidates[kFast].predicted_us, kMeasured) << "the model alone would say less";
  EXPECT_LT(candidates[kCopy].predicted_us, 0) << "what the host excludes stays out";
}

TEST_F(TableTunerTest, AnEntryForOtherCallsSaysNothingOfThoseThatNeedRegisteredBuffers) {
  follow(entry("simple"));
  const auto candidates = choose(true);
  EXPECT_EQ(candidates[kSimple].predicted_us, kMeasured);
  EXPECT_GT(candidates[kFast].predicted_us, kMeasured);
  EXPECT_LT(candidates[kCopy].predicted_us, kMeasured) << "the model's word, as it was not measured against";
}

TEST_F(TableTunerTest, AnEntryForRegisteredBuffersDecidesAmongAll) {
  follow(entry("simple") + entry("simple", ", registered: true"));
  const auto candidates = choose(true);
  EXPECT_EQ(candidates[kSimple].predicted_us, kMeasured);
  EXPECT_GT(candidates[kCopy].predicted_us, kMeasured);
  EXPECT_GT(candidates[kFast].predicted_us, kMeasured);
}

TEST_F(TableTunerTest, AnEntryThatIsExcludedOrUnknownLeavesTheModel) {
  follow(entry("copy"));
  const auto excluded = choose(false);
  EXPECT_LT(excluded[kFast].predicted_us, kMeasured);
  EXPECT_LT(excluded[kFast].predicted_us, excluded[kSimple].predicted_us);
}

TEST_F(TableTunerTest, AnAlgorithmThatIsNotLoadedLeavesTheModel) {
  follow(entry("simple", "", "hypercube"));
  const auto candidates = choose(false);
  EXPECT_LT(candidates[kFast].predicted_us, candidates[kSimple].predicted_us);
  EXPECT_NE(candidates[kSimple].predicted_us, kMeasured);
}

TEST_F(TableTunerTest, ATableOfAnotherJobLeavesTheModel) {
  follow(entry("simple"), 5);
  EXPECT_NE(choose(false)[kSimple].predicted_us, kMeasured);
}

}  // namespace
}  // namespace tutti::test
