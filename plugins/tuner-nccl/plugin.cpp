// SPDX-License-Identifier: Apache-2.0
// Tuner "nccl": a tuner plugin of NCCL, loaded from its file without a change. It changes the times that the model
// predicts.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alpha_beta/model.h"
#include "alpha_beta/settings.h"
#include "cost_table.h"
#include "library.h"
#include "nccl_plugins/log.h"
#include "tutti/sdk/tuner.h"

namespace tutti::tuner_nccl {
namespace {

/// The number of a collective in ncclFunc_t; empty: NCCL asks no tuner.
std::optional<int> function_of(uint32_t collective) {
  switch (collective) {
    case TUTTI_BROADCAST:
      return 0;
    case TUTTI_REDUCE:
      return 1;
    case TUTTI_ALL_GATHER:
      return 2;
    case TUTTI_REDUCE_SCATTER:
      return 3;
    case TUTTI_ALL_REDUCE:
      return 4;
    default:
      return std::nullopt;
  }
}

/// Keeps the file, the log and the context of a communicator.
class Advised : public sdk::TunerInstance {
 public:
  Advised(alpha_beta::Model model, Library library, std::shared_ptr<const nccl_plugins::Sink> sink, void* context)
      : model_(std::move(model)), library_(std::move(library)), sink_(std::move(sink)), context_(context) {}
  ~Advised() override { library_.end(*sink_, context_); }
  Advised(const Advised&) = delete;
  Advised& operator=(const Advised&) = delete;

  Status choose(const tutti_call& call, const sdk::Candidates& candidates) const override {
    for (tutti_candidate& candidate : candidates) model_.predict(call, candidate);
    const std::optional<int> function = function_of(call.collective);
    if (!function) return {};
    const CostTable before = fill(candidates);
    CostTable after = before;
    int channels = 0;
    {
      const std::lock_guard lock(mutex_);
      TUTTI_TRY(library_.choose(*sink_, context_, {*function, call.block_bytes * call.blocks, call.registered != 0},
                                after, channels));
    }
    apply(before, after, channels, candidates);
    return {};
  }

 private:
  alpha_beta::Model model_;
  Library library_;
  std::shared_ptr<const nccl_plugins::Sink> sink_;
  void* context_;
  mutable std::mutex mutex_;  // NCCL asks for one call of a communicator at a time
};

class Tuner : public sdk::Tuner {
 public:
  static std::vector<tutti_config_key> settings() {
    auto keys = alpha_beta::model_settings();
    keys.push_back(sdk::setting(TUTTI_CONFIG_TEXT, "file", "",
                                "File of NCCL's tuner plugin: a path, or NAME for libnccl-tuner-NAME.so."));
    return keys;
  }

  /// Without a file, only create() fails: a list of all plugins opens each plugin.
  Status open(const sdk::Host& host) override {
    sink_ = std::make_shared<const nccl_plugins::Sink>(host);
    const std::string file = host.text("file");
    if (file.empty()) return {};
    const nccl_plugins::LogScope log(*sink_);  // a constructor of the file may log
    TUTTI_ASSIGN(library_, Library::load(file));
    return {};
  }

  Result<std::unique_ptr<sdk::TunerInstance>> create(const tutti_topology& topology) override {
    if (!library_) {
      return Status(Code::kConfig,
                    "settings.tuner.nccl.file is empty; set it to the path of an NCCL tuner plugin, or to NAME for "
                    "libnccl-tuner-NAME.so; or name the tuner nccl:FILE in plugins.tuner");
    }
    void* context = nullptr;
    TUTTI_TRY(library_->begin(*sink_, topology, &context));
    host().log(TUTTI_LOG_INFO, "follows NCCL tuner plugin " + library_->place());
    const alpha_beta::Model model(alpha_beta::constants_of(host()), topology);
    return std::unique_ptr<sdk::TunerInstance>(std::make_unique<Advised>(model, *library_, sink_, context));
  }

 private:
  std::shared_ptr<const nccl_plugins::Sink> sink_;
  std::optional<Library> library_;
};

}  // namespace
}  // namespace tutti::tuner_nccl

TUTTI_PLUGIN(tutti::tuner_nccl::Tuner, "nccl", "0.1.0", "a tuner plugin of NCCL, from its file")
