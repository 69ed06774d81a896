// SPDX-License-Identifier: Apache-2.0
#include "tuner/sample.h"

#include <fmt/format.h>

namespace tutti::tuner {
namespace {

constexpr uint64_t kLeastBytes = 8;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr uint64_t kFactor = 16;

std::string text_of(const Decision& decision, const Choices& choices) {
  std::string name = "a message";
  if (decision.algorithm != kNoAlgorithm) {
    const Algorithm& algorithm = choices.algorithms[decision.algorithm];
    name = algorithm.name;
    const std::string& variant = algorithm.variants[decision.variant].name;
    if (!variant.empty()) name += "/" + variant;
  }
  std::string text = fmt::format("{} × {} ×{}", name, choices.protocols[decision.protocol].name, decision.channels);
  if (choices.networks.size() > 1) text += " over " + choices.networks[decision.network].name;
  return text;
}

}  // namespace

std::vector<std::string> sample_decisions(const Selector& selector) {
  std::vector<std::string> lines;
  for (uint32_t c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    for (uint64_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= kFactor) {
      const auto decision = selector.choose({collective, DataType::kFloat32, ReduceOp::kSum, bytes / sizeof(float)});
      lines.push_back(fmt::format("{} of blocks of {} bytes={}", to_string(collective), bytes,
                                  decision.ok() ? text_of(*decision, selector.choices()) : "nothing"));
    }
  }
  return lines;
}

}  // namespace tutti::tuner
