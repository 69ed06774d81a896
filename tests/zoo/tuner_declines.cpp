// SPDX-License-Identifier: Apache-2.0
// A tuner that declines large calls and throws for small calls.
#include <stdexcept>

#include "tutti/sdk/tuner.h"

namespace {

using namespace tutti;

class Instance : public sdk::TunerInstance {
 public:
  Status choose(const tutti_call& call, const sdk::Candidates& /*candidates*/) const override {
    if (call.block_bytes < 1024) throw std::runtime_error("the scales are too coarse");
    return {Code::kUnsupported, "the tables end at 1 KiB"};
  }
};

class TunerDeclines : public sdk::Tuner {
 public:
  Result<std::unique_ptr<sdk::TunerInstance>> create(const tutti_topology& /*topology*/) override {
    return std::unique_ptr<sdk::TunerInstance>(std::make_unique<Instance>());
  }
};

}  // namespace

TUTTI_PLUGIN(TunerDeclines, "tuner_declines", "1.0", "declines calls")
