// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "program/repeat.h"
#include "tools/check/compare.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint32_t kMostVariants = 64;
constexpr uint32_t kFewRanks = 9;

program::AlgorithmPlugin algorithm_of(const Trial& trial) {
  return {trial.plugin().name(), &trial.ops<tutti_algorithm_ops>(), trial.self()};
}

template <class T>
void append(std::string& bytes, const std::vector<T>& list) {
  const uint64_t size = list.size();
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T));
}

}  // namespace

std::vector<Variant> variants_of(Trial& trial) {
  std::vector<Variant> variants;
  for (;;) {
    tutti_str name{};
    uint64_t collectives = 0;
    const auto index = static_cast<uint32_t>(variants.size());
    const int32_t code = trial.call(
        "variant", [&] { return trial.ops<tutti_algorithm_ops>().variant(trial.self(), index, &name, &collectives); });
    if (code == TUTTI_NOT_FOUND) return variants;
    if (code != TUTTI_OK) {
      trial.violate_failure("ALG-5", fmt::format("variant {}", index),
                            Status(static_cast<Code>(code), plugin::take_failure_text()));
    }
    variants.push_back({std::string(name.data, name.size), collectives});
    if (variants.size() > kMostVariants) {
      trial.violate("ALG-5", fmt::format("variant {} is not TUTTI_NOT_FOUND; the list must end", kMostVariants));
    }
  }
}

Result<topology::NodeGraph> search(Trial& trial, const Job& job, uint32_t rank) {
  tutti_topology topology = job.topology();
  tutti_system system{};
  if (!job.systems.empty()) {
    system = job.systems[job.node_of_rank[rank]]->view();
    topology.system = &system;
  }
  auto graph = trial.call("search", [&] { return program::search(algorithm_of(trial), topology, rank); });
  if (graph.ok() || graph.status().code() == Code::kUnsupported) return graph;
  trial.violate_failure("ALG-6", fmt::format("search for rank {} of {}", rank, job.name()), graph.status());
}

Channels::Channels(Trial& trial, const Job& job) : trial_(trial), job_(job) {
  const tutti_topology topology = job.topology();
  for (uint32_t node = 0; node < job.node_count; ++node) {
    const auto& nodes = job.node_of_rank;
    const auto rank = static_cast<uint32_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
    auto graph = search(trial, job, rank);
    if (!graph.ok()) return;
    graphs_.push_back(*std::move(graph));
  }
  auto instance = trial.call("connect", [&] { return program::connect(algorithm_of(trial), topology, graphs_); });
  if (!instance.ok() && instance.status().code() == Code::kUnsupported) return;
  if (!instance.ok()) trial.violate_failure("ALG-7", fmt::format("connect of {}", job.name()), instance.status());
  if (*instance == nullptr) trial.violate("ALG-7", fmt::format("connect of {} gives no instance", job.name()));
  instance_ = *std::move(instance);
}

uint32_t Channels::count() {
  return trial_.call("channel_count", [&] { return trial_.ops<tutti_algorithm_ops>().channel_count(instance_.get()); });
}

Result<program::Plan> Channels::ask(const tutti_plan_request& request) const {
  return program::collect_rolled(trial_.ops<tutti_algorithm_ops>(), instance_.get(), request);
}

Result<program::Plan> Channels::plan(const tutti_plan_request& request) {
  auto plan = trial_.call("plan", [&] { return ask(request); });
  if (plan.ok() || plan.status().code() == Code::kUnsupported) {
    if (!plan.ok() && plan.status().text().find("PLG-14") != std::string_view::npos) {
      trial_.violate_failure("ALG-8", "plan", plan.status());
    }
    return plan;
  }
  trial_.violate_failure("ALG-8",
                         fmt::format("the plan of rank {} for {}, variant {}, root {}, channel {}, {}", request.rank,
                                     to_string(static_cast<Collective>(request.collective)), request.variant,
                                     request.root, request.channel, job_.name()),
                         plan.status());
}

Result<tutti_algorithm_cost> Channels::cost(uint32_t collective, uint32_t variant) {
  tutti_algorithm_cost cost{};
  cost.struct_size = sizeof cost;
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code = trial_.call(
      "cost", [&] { return trial_.ops<tutti_algorithm_ops>().cost(instance_.get(), collective, variant, &cost); });
  if (code == TUTTI_OK) return cost;
  const Status failure(static_cast<Code>(code), plugin::take_failure_text());
  if (code != TUTTI_UNSUPPORTED || failure.text().empty()) {
    trial_.violate_failure(
        "ALG-11",
        fmt::format("cost of {}, variant {}, {}", to_string(static_cast<Collective>(collective)), variant, job_.name()),
        failure);
  }
  return failure;
}

tutti_channel_nets Channels::nets(uint32_t channel, uint32_t rank, uint32_t peer) {
  tutti_channel_nets nets{};
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code = trial_.call(
      "nets", [&] { return trial_.ops<tutti_algorithm_ops>().nets(instance_.get(), channel, rank, peer, &nets); });
  if (code == TUTTI_OK) return nets;
  trial_.violate_failure("ALG-12",
                         fmt::format("nets of channel {}, rank {} to rank {}, {}", channel, rank, peer, job_.name()),
                         Status(static_cast<Code>(code), plugin::take_failure_text()));
}

std::vector<Work> works(Channels& channels, const std::vector<Variant>& variants) {
  std::vector<Work> list;
  const uint32_t ranks = channels.job().rank_count();
  const uint32_t count = channels.count();
  for (uint32_t variant = 0; variant < variants.size(); ++variant) {
    for (uint32_t collective = 0; collective < kCollectiveCount; ++collective) {
      if ((variants[variant].collectives >> collective & 1) == 0) continue;
      const uint32_t roots = program::has_root(static_cast<Collective>(collective)) ? ranks : 1;
      for (uint32_t root = 0; root<roots; root += ranks> kFewRanks ? std::max(1u, ranks / 2) : 1) {
        for (uint32_t channel = 0; channel < count; ++channel) list.push_back({variant, collective, root, channel});
      }
    }
  }
  return list;
}

tutti_plan_request request_for(const Work& work, uint32_t rank) {
  return {sizeof(tutti_plan_request), work.collective, rank, work.channel, work.root, work.variant};
}

void for_each_job(Trial& trial, const std::vector<Job>& jobs, const std::function<void(Channels&)>& visit) {
  uint32_t taken = 0;
  for (const Job& job : jobs) {
    Channels channels(trial, job);
    if (channels.is_declined()) continue;
    ++taken;
    visit(channels);
  }
  if (taken == 0) trial.skip("the algorithm declines all topologies of the kit");
}

std::string text_of(const Work& work, const std::vector<Variant>& variants, const Job& job) {
  const std::string& variant = variants[work.variant].name;
  return fmt::format("{}{}{}, root {}, channel {}, {}", to_string(static_cast<Collective>(work.collective)),
                     variant.empty() ? "" : "/", variant, work.root, work.channel, job.name());
}

std::string difference(const program::Plan& first, const program::Plan& second) {
  if (first.steps.size() != second.steps.size()) {
    return fmt::format("{} steps, then {}", first.steps.size(), second.steps.size());
  }
  for (size_t i = 0; i < first.steps.size(); ++i) {
    const program::RolledStep place{static_cast<uint32_t>(i), 0};
    const auto one = program::in_round(first, place), other = program::in_round(second, place);
    const bool peers = one.peers.size() == other.peers.size() &&
                       std::equal(one.peers.begin(), one.peers.end(), other.peers.begin(),
                                  [](auto a, auto b) { return a.rank == b.rank && a.chunk == b.chunk; });
    if (!peers) return fmt::format("step {} has other peers", i);
    if (std::memcmp(&first.steps[i], &second.steps[i], sizeof first.steps[i]) != 0) {
      return fmt::format("step {} differs", i);
    }
  }
  return "they differ outside of their steps";
}

uint64_t digest(const program::Plan& plan) {
  std::string bytes;
  append(bytes, std::vector<uint32_t>{static_cast<uint32_t>(plan.collective), plan.rank_count, plan.rank, plan.root,
                                      plan.channel, plan.chunks, plan.input_blocks, plan.output_blocks,
                                      plan.scratch_chunks, plan.message_chunks});
  append(bytes, plan.steps);
  append(bytes, plan.peers);
  append(bytes, plan.ranges);
  append(bytes, plan.repeats);
  append(bytes, plan.growths);
  append(bytes, plan.strands);
  append(bytes, plan.waits);
  return check::hash(bytes.data(), bytes.size());
}

}  // namespace tutti::tools::plugin_test
