// SPDX-License-Identifier: Apache-2.0
#include "unit/plan_support.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "program/channels.h"
#include "program/describe.h"
#include "program/file/file.h"
#include "program/in_one_strand.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

std::string_view view(tutti_str text) {
  return {text.data, text.size};
}

/// Every setting has its default.
int32_t config_get(void* context, tutti_str name, tutti_value* out) {
  const auto& plugin = *static_cast<const tutti_plugin*>(context);
  for (uint64_t i = 0; i < plugin.config_key_count; ++i) {
    const tutti_config_key& key = plugin.config_keys[i];
    if (view(key.name) != view(name)) continue;
    out->type = key.type;
    out->integer = std::strtoll(std::string(view(key.default_text)).c_str(), nullptr, 10);
    out->text = key.default_text;
    return TUTTI_OK;
  }
  return TUTTI_NOT_FOUND;
}

void print(void*, int32_t, tutti_str text) {
  std::cerr << view(text) << '\n';
}
thread_local std::string failure_text;  // of the plugins' last failure
void fail(void*, tutti_str text) {
  failure_text = view(text);
}

}  // namespace

NodeOfRank split(uint32_t ranks, uint32_t nodes) {
  NodeOfRank result;
  for (uint32_t rank = 0; rank < ranks; ++rank) result.push_back(rank * nodes / ranks);
  return result;
}

tutti_topology topology_of(const NodeOfRank& node_of_rank) {
  tutti_topology topology = {};
  topology.struct_size = sizeof(topology);
  topology.rank_count = static_cast<uint32_t>(node_of_rank.size());
  topology.node_count = 1 + *std::max_element(node_of_rank.begin(), node_of_rank.end());
  topology.node_of_rank = node_of_rank.data();
  topology.bandwidth_gbs[TUTTI_LINK_P2P] = 350;
  topology.bandwidth_gbs[TUTTI_LINK_NETWORK] = 50;
  topology.latency_us[TUTTI_LINK_P2P] = 1;
  topology.latency_us[TUTTI_LINK_NETWORK] = 5;
  return topology;
}

Algorithm::Algorithm(const std::string& name, const std::string& folder) : name_(name) {
  const std::string path = fmt::format("{}/{}/tutti-algo-{}.so", TUTTI_BINARY_DIR, folder, name);
  void* image = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(image != nullptr, fmt::format("{}: {}", path, image == nullptr ? dlerror() : ""));
  const auto entry = reinterpret_cast<tutti_plugin_entry_fn>(dlsym(image, TUTTI_PLUGIN_ENTRY_NAME));
  require(entry != nullptr, path + ": has no entry");
  plugin_.struct_size = sizeof(plugin_);
  require(entry(&plugin_) == TUTTI_OK, path + ": the entry fails");
  host_ = {.struct_size = sizeof(host_),
           .abi_major = TUTTI_ALGORITHM_ABI_MAJOR,
           .abi_minor = TUTTI_ALGORITHM_ABI_MINOR,
           .context = &plugin_,
           .log = print,
           .fail = fail,
           .config_get = config_get};
  require(plugin_.open(&host_, &self_) == TUTTI_OK, path + ": cannot be opened");
}

Algorithm::~Algorithm() {
  plugin_.close(self_);
}

std::vector<Algorithm::Variant> Algorithm::variants() const {
  std::vector<Variant> result;
  tutti_str name = {};
  uint64_t collectives = 0;
  for (uint32_t i = 0; ops().variant(self_, i, &name, &collectives) == TUTTI_OK; ++i) {
    result.push_back({std::string(view(name)), collectives});
  }
  return result;
}

uint32_t Algorithm::variant(const std::string& name) const {
  const std::vector<Variant> all = variants();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Variant& each) { return each.name == name; });
  require(found != all.end(), fmt::format("{} has no variant '{}'", name_, name));
  return static_cast<uint32_t>(found - all.begin());
}

Connected::Connected(const Algorithm& algorithm, const NodeOfRank& node_of_rank, uint32_t max_channels)
    : algorithm_(algorithm), rank_count_(static_cast<uint32_t>(node_of_rank.size())) {
  tutti_topology topology = topology_of(node_of_rank);
  topology.min_channels = topology.max_channels = max_channels;
  auto instance = program::search_and_connect({algorithm.name(), &algorithm.ops(), algorithm.self()}, topology);
  require(instance.ok(), instance.ok() ? "" : failure_text + instance.status().to_string());
  instance_ = instance->release();
}

Connected::~Connected() {
  algorithm_.ops().disconnect(instance_);
}

Result<std::vector<program::Plan>> Connected::plans(uint32_t collective, uint32_t variant, uint32_t root,
                                                    uint32_t channel) {
  const tutti_plan_request request = {sizeof(request), collective, 0, channel, root, variant};
  auto plans = program::collect_all(algorithm_.ops(), instance_, request, rank_count_);
  if (!plans.ok()) return Status(plans.status().code(), std::exchange(failure_text, {}) + plans.status().to_string());
  return plans;
}

tutti_algorithm_cost Connected::cost(uint32_t collective, uint32_t variant) const {
  tutti_algorithm_cost cost = {};
  cost.struct_size = sizeof(cost);
  require(algorithm_.ops().cost(instance_, collective, variant, &cost) == TUTTI_OK,
          algorithm_.name() + ": cost fails: " + failure_text);
  return cost;
}

std::vector<Sample> samples(const std::vector<uint32_t>& rank_counts, bool all_roots) {
  std::vector<Sample> result;
  for (const char* name : {"ring", "tree", "hier", "direct"}) {
    const Algorithm algorithm(name);
    const auto variants = algorithm.variants();
    for (uint32_t ranks : rank_counts) {
      Connected connected(algorithm, split(ranks, 1 + ranks / 3));
      for (uint32_t variant = 0; variant < variants.size(); ++variant) {
        for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
          if (!variants[variant].can(collective)) continue;
          const bool rooted = program::has_root(static_cast<Collective>(collective));
          for (uint32_t root = 0; root < (rooted && all_roots ? ranks : 1); ++root) {
            auto plans = connected.plans(collective, variant, root);
            if (plans.status().code() == Code::kUnsupported) continue;  // hier, if the ranks have no hierarchy
            require(plans.ok(), plans.status().to_string());
            result.push_back({fmt::format("{} {} {}, {} ranks, root {}", name, variants[variant].name,
                                          to_string(static_cast<Collective>(collective)), ranks, root),
                              *std::move(plans)});
          }
        }
      }
    }
  }
  return result;
}

program::Plan write_plan(uint32_t collective, uint32_t ranks, uint32_t rank, uint32_t chunks,
                         const std::function<void(sdk::PlanBuilder&)>& write) {
  const tutti_plan_request request = {sizeof(request), collective, rank, 0, 0, 0};
  sdk::PlanBuilder builder(request, ranks, chunks);
  write(builder);
  auto plan = program::collect([&](const tutti_plan_sink* sink) { return builder.emit(*sink); });
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *std::move(plan) : program::Plan{};
}

std::vector<program::Plan> write_plans(uint32_t collective, uint32_t ranks, uint32_t chunks,
                                       const std::function<void(sdk::PlanBuilder&, uint32_t)>& write) {
  std::vector<program::Plan> plans;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    plans.push_back(
        write_plan(collective, ranks, rank, chunks, [&](sdk::PlanBuilder& builder) { write(builder, rank); }));
  }
  return plans;
}

std::vector<program::Plan> plans_of(const std::string& name, uint32_t ranks) {
  for (const Sample& sample : samples({ranks}, true)) {
    if (sample.name.starts_with(name + ',')) return sample.plans;
  }
  ADD_FAILURE() << "no sample is called " << name;
  return {};
}

bool can_run_in_place(const program::Plan& plan) {
  return plan.collective != Collective::kAllToAll;
}

std::string listing(const std::vector<program::Plan>& plans) {
  std::string text;
  for (const program::Plan& plan : plans) {
    text += program::validate(plan.view()).ok() ? program::to_text(plan) : std::string("(a malformed plan)\n");
  }
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string fault(const std::string& text) {
  const auto file = program::parse_file(text, "p");
  return std::string(file.ok() ? program::verify_file(*file, "p").text() : file.status().text());
}

}  // namespace tutti::test
