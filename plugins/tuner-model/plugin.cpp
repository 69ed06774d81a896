// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "alpha_beta/model.h"
#include "alpha_beta/settings.h"
#include "tutti/sdk/tuner.h"

namespace tutti::tuner_model {
namespace {

using alpha_beta::Constants;

class Predictor : public sdk::TunerInstance {
 public:
  Predictor(const Constants& constants, const tutti_topology& topology) : model_(constants, topology) {}

  Status choose(const tutti_call& call, const sdk::Candidates& candidates) const override {
    for (tutti_candidate& candidate : candidates) model_.predict(call, candidate);
    return {};
  }

 private:
  alpha_beta::Model model_;
};

class Tuner : public sdk::Tuner {
 public:
  static std::vector<tutti_config_key> settings() { return alpha_beta::model_settings(); }

  Result<std::unique_ptr<sdk::TunerInstance>> create(const tutti_topology& topology) override {
    return std::unique_ptr<sdk::TunerInstance>(std::make_unique<Predictor>(alpha_beta::constants_of(host()), topology));
  }
};

}  // namespace
}  // namespace tutti::tuner_model

TUTTI_PLUGIN(tutti::tuner_model::Tuner, "model", "0.1.0", "predicts times by the alpha-beta model")
