// SPDX-License-Identifier: Apache-2.0
// A tuner that commits one fault, named in its setting `fault`; with "none" it is right.
#include <unistd.h>

#include <atomic>
#include <limits>

#include "conformance/mock_fault.h"
#include "tutti/sdk/tuner.h"

namespace tutti::mock {
namespace {

constexpr uint64_t kHuge = uint64_t{1} << 35;

std::atomic<uint32_t> instances{0};  // relaxed: only counts

std::string& fault() {
  static std::string name;
  return name;
}

class Instance : public sdk::TunerInstance {
 public:
  Status choose(const tutti_call& call, const sdk::Candidates& candidates) const override {
    if (has("no_reason")) return {Code::kInternal, ""};
    if (has("refuses_large") && call.block_bytes > kHuge) return {Code::kUnsupported, "the call is too large"};
    if (has("refuses_type") && call.data_type == TUTTI_FLOAT8_E5M2) return {Code::kUnsupported, "no such type"};
    racing_bytes_ = call.block_bytes;
    for (tutti_candidate& one : candidates) {
      if (one.predicted_us < 0 && !has("touches_excluded")) continue;
      one.channels = 1;
      one.predicted_us = time_of(call);
      spoil(call, one);
    }
    return {};
  }

 private:
  static bool has(std::string_view name) { return fault() == name; }

  double time_of(const tutti_call& call) const {
    const double us = 1 + static_cast<double>(call.block_bytes) * 1e-3;
    if (has("nan")) return std::numeric_limits<double>::quiet_NaN();
    if (has("infinite") && call.block_bytes > kHuge) return std::numeric_limits<double>::infinity();
    if (has("falls") && call.block_bytes >= 1 << 20) return us / 1000;
    if (has("remembers")) return us + static_cast<double>(asked_++);
    if (has("rank_state")) return us + number_;
    if (has("process_state")) return us + getpid();
    if (has("races")) {
      for (int i = 0; i < 200; ++i) ++asked_;
      return static_cast<double>(racing_bytes_);
    }
    return us;
  }

  static void spoil(const tutti_call& call, tutti_candidate& one) {
    if (has("no_channels")) one.channels = 0;
    if (has("many_channels")) one.channels = one.max_channels + 1;
    if (has("changes_inputs")) one.memory = 0;
    if (!has("silent_exclusion") || call.block_bytes < 4096) return;
    one.predicted_us = -1;
    one.reason = {};
  }

  uint32_t number_ = instances++;
  mutable std::atomic<uint64_t> asked_{0};         // relaxed: only counts
  mutable std::atomic<uint64_t> racing_bytes_{0};  // relaxed: a fault
};

class Mock : public sdk::Tuner {
 public:
  static std::vector<tutti_config_key> settings() { return fault_setting(); }
  Status open(const sdk::Host& host) override {
    fault() = host.text("fault");
    return {};
  }
  Result<std::unique_ptr<sdk::TunerInstance>> create(const tutti_topology& /*topology*/) override {
    return std::unique_ptr<sdk::TunerInstance>(std::make_unique<Instance>());
  }
};

/// The table of the SDK, with an entry that the SDK's thunk would repair.
const tutti_tuner_ops* table() {
  static tutti_tuner_ops ops = *sdk::Tuner::table();
  ops.choose = [](void* instance, const tutti_call* call, tutti_candidate* const* candidates, uint32_t count) {
    misbehave(fault());
    return sdk::Tuner::table()->choose(instance, call, candidates, count);
  };
  return &ops;
}

}  // namespace
}  // namespace tutti::mock

extern "C" __attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out) {
  const int32_t code = tutti::sdk::describe<tutti::mock::Mock>(out, "mock", "1.0", "a tuner with faults");
  if (code == TUTTI_OK) out->ops = tutti::mock::table();
  return code;
}
