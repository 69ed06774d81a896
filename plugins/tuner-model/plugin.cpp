// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "model.h"
#include "tutti/sdk/tuner.h"

namespace tutti::tuner_model {
namespace {

class Predictor : public sdk::TunerInstance {
 public:
  Predictor(const Constants& constants, const tutti_topology& topology) : model_(constants, topology) {}

  Status choose(const tutti_call& call, std::span<tutti_candidate> candidates) const override {
    for (tutti_candidate& candidate : candidates) model_.predict(call, candidate);
    return {};
  }

 private:
  Model model_;
};

class Tuner : public sdk::Tuner {
 public:
  static std::vector<tutti_config_key> settings() {
    return {
        sdk::setting(TUTTI_CONFIG_INTEGER, "memory_gbs", "1000",
                     "bandwidth of a rank's own memory in GB/s, reads and writes together", 1, 1000000),
        sdk::setting(TUTTI_CONFIG_INTEGER, "channel_gbs", "45", "what one channel can move, in GB/s", 1, 100000),
        sdk::setting(TUTTI_CONFIG_SIZE, "channel_bytes", "64KiB", "fewer bytes are not worth a channel of their own", 1,
                     int64_t{1} << 40),
        sdk::setting(TUTTI_CONFIG_DURATION, "call_latency", "0us", "added to every prediction", 0, 1000000000),
    };
  }

  Result<std::unique_ptr<sdk::TunerInstance>> create(const tutti_topology& topology) override {
    Constants constants;
    constants.memory_gbs = static_cast<double>(host().integer("memory_gbs"));
    constants.channel_gbs = static_cast<double>(host().integer("channel_gbs"));
    constants.channel_bytes = static_cast<double>(host().integer("channel_bytes"));
    constants.call_us = static_cast<double>(host().integer("call_latency")) / 1e3;
    return std::unique_ptr<sdk::TunerInstance>(std::make_unique<Predictor>(constants, topology));
  }
};

}  // namespace
}  // namespace tutti::tuner_model

TUTTI_PLUGIN(tutti::tuner_model::Tuner, "model", "0.1.0", "predicts times by the alpha-beta model")
