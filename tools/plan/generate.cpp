// SPDX-License-Identifier: Apache-2.0
#include "tools/plan/generate.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "plugin/loader.h"
#include "plugin/search.h"
#include "program/channels.h"

namespace tutti::tools {
namespace {

std::string_view view(const tutti_str& text) {
  return {text.data, text.size};
}

/// An algorithm plugin, connected for a made-up topology.
class Algorithm {
 public:
  static Result<Algorithm> open(const std::string& name, config::Config& config) {
    TUTTI_ASSIGN(const auto file,
                 plugin::find(plugin::Kind::kAlgorithm, name, plugin::search_path(config.list("plugins.path"))));
    TUTTI_ASSIGN(auto image, plugin::Image::load(plugin::Kind::kAlgorithm, name, file, config.text("plugins.trust")));
    TUTTI_ASSIGN(auto plugin, plugin::Plugin::open(std::move(image), config));
    return Algorithm(std::move(plugin));
  }

  Status connect(const PlanQuestion& question) {
    constexpr uint32_t kMaxChannels = 16;
    std::vector<uint32_t> node_of_rank(question.rank_count);
    for (uint32_t rank = 0; rank < question.rank_count; ++rank) {
      node_of_rank[rank] = rank * question.host_count / question.rank_count;
    }
    tutti_topology topology{};
    topology.struct_size = sizeof(topology);
    topology.rank_count = question.rank_count;
    topology.node_count = question.host_count;
    topology.min_channels = topology.max_channels = kMaxChannels;
    topology.node_of_rank = node_of_rank.data();
    topology.bandwidth_gbs[TUTTI_LINK_SHM] = 10;
    topology.bandwidth_gbs[TUTTI_LINK_NETWORK] = 1;
    topology.latency_us[TUTTI_LINK_SHM] = 1;
    topology.latency_us[TUTTI_LINK_NETWORK] = 20;

    TUTTI_ASSIGN(instance_, program::search_and_connect({plugin_->name(), ops_, plugin_->self()}, topology));
    return {};
  }

  /// The variant of that name; without a name, the first that can do the collective.
  Result<uint32_t> variant(const std::string& name, Collective collective) const {
    std::string known;
    bool exists = name.empty();
    tutti_str text{};
    uint64_t collectives = 0;
    for (uint32_t i = 0; ops_->variant(plugin_->self(), i, &text, &collectives) == TUTTI_OK; ++i) {
      exists = exists || view(text) == name;
      const bool can = (collectives >> static_cast<uint32_t>(collective) & 1) != 0;
      if (can && (name.empty() || view(text) == name)) return i;
      known += fmt::format("; {}{}{}", plugin_->name(), text.size > 0 ? "/" : "", view(text));
      known += can ? " can" : " cannot";
    }
    if (!exists) {
      return Status(Code::kNotFound, fmt::format("{} has no variant '{}'{}", plugin_->name(), name, known));
    }
    return Status(Code::kUnsupported, fmt::format("{}{}{} does not do {}{}", plugin_->name(), name.empty() ? "" : "/",
                                                  name, to_string(collective), known));
  }

  const std::string& name() const { return plugin_->name(); }
  uint32_t channel_count() const { return ops_->channel_count(instance_.get()); }
  std::string variant_name(uint32_t variant) const {
    tutti_str text{};
    uint64_t collectives = 0;
    const bool found = ops_->variant(plugin_->self(), variant, &text, &collectives) == TUTTI_OK;
    return found ? std::string(view(text)) : std::string();
  }
  Result<program::Plan> plan(const tutti_plan_request& request) const {
    return program::collect_rolled(*ops_, instance_.get(), request);
  }

 private:
  explicit Algorithm(std::shared_ptr<plugin::Plugin> plugin)
      : plugin_(std::move(plugin)), ops_(plugin_->ops<tutti_algorithm_ops>()) {}

  std::shared_ptr<plugin::Plugin> plugin_;
  const tutti_algorithm_ops* ops_;
  program::Instance instance_{nullptr, [](void*) {}};
};

struct AlgorithmName {
  std::string plugin;
  std::string variant;
};

/// In a path, the variant follows "....so/"; no name of a variant contains a slash.
AlgorithmName split_algorithm(const std::string& named) {
  const bool is_path = named.starts_with('/') || named.find(".so") != std::string::npos;
  const std::string text = is_path ? std::filesystem::absolute(named).lexically_normal().string() : named;
  const size_t slash = is_path ? text.rfind('/') : text.find('/');
  const std::string plugin = text.substr(0, slash);
  if (slash == std::string::npos || (is_path && (text.ends_with(".so") || !plugin.ends_with(".so")))) return {text, {}};
  return {plugin, text.substr(slash + 1)};
}

}  // namespace

Result<program::PlanFile> generate(const PlanQuestion& question, config::Config config) {
  const auto [plugin, wanted] = split_algorithm(question.algorithm);
  TUTTI_ASSIGN(Algorithm algorithm, Algorithm::open(plugin, config));
  program::PlanFile file{algorithm.name(), {}, {}};
  TUTTI_ASSIGN(const uint32_t variant, algorithm.variant(wanted, question.collective));
  TUTTI_TRY(algorithm.connect(question));
  if (question.channel >= algorithm.channel_count()) {
    return Status(Code::kInvalidArgument, fmt::format("{} has {} channels here; there is no channel {}", file.algorithm,
                                                      algorithm.channel_count(), question.channel));
  }
  file.variant = algorithm.variant_name(variant);
  for (uint32_t rank = 0; rank < question.rank_count; ++rank) {
    const uint32_t root = program::has_root(question.collective) ? question.root : 0;
    TUTTI_ASSIGN(program::Plan plan,
                 algorithm.plan({sizeof(tutti_plan_request), static_cast<uint32_t>(question.collective), rank,
                                 question.channel, root, variant}));
    file.plans.push_back(std::move(plan));
  }
  return file;
}

}  // namespace tutti::tools
