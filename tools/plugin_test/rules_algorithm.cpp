// SPDX-License-Identifier: Apache-2.0
// Rules of algorithms, without the rules about plans: variants, search, connect, costs and devices.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/check/compare.h"
#include "tools/plugin_test/channels.h"
#include "tools/plugin_test/rule.h"

namespace tutti::tools::plugin_test {
namespace {

void test_variants(Trial& trial) {
  const std::vector<Variant> variants = variants_of(trial);
  if (variants.empty()) trial.violate("the algorithm has no variant");
  std::set<std::string> names;
  for (size_t i = 0; i < variants.size(); ++i) {
    const auto& [name, collectives] = variants[i];
    if (!names.insert(name).second) trial.violate(fmt::format("two variants have the name '{}'", name));
    if (name.empty() && variants.size() > 1) trial.violate(fmt::format("variant {} of several has no name", i));
    if (collectives == 0) trial.violate(fmt::format("variant {} does no collective", i));
    if (collectives >> kCollectiveCount != 0) {
      trial.violate(fmt::format("variant {} names collectives that do not exist: bits {:#x}", i, collectives));
    }
  }
  const std::vector<Variant> again = variants_of(trial);
  for (size_t i = 0; i < std::max(again.size(), variants.size()); ++i) {
    if (i >= again.size() || i >= variants.size() || again[i].name != variants[i].name ||
        again[i].collectives != variants[i].collectives) {
      trial.violate(fmt::format("variant {} is different at the second call", i));
    }
  }
}

void test_search(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  for_each_job(trial, jobs, [&](Channels& channels) {
    for (uint32_t node = 0; node < channels.graphs().size(); ++node) {
      const uint32_t count = channels.graphs()[node].channel_count();
      if (count > channels.job().channels) {
        trial.violate(fmt::format("search reports {} channels of machine {}, {}; max_channels is {}", count, node,
                                  channels.job().name(), channels.job().channels));
      }
    }
  });
}

void test_connect(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  for_each_job(trial, jobs, [&](Channels& channels) {
    const uint32_t count = channels.count();
    const uint32_t wanted = channels.job().channels;
    if (count == 0 || count > wanted) {
      trial.violate(fmt::format("{} channels of {}; 1 to max_channels, which is {}, are allowed", count,
                                channels.job().name(), wanted));
    }
    if (const uint32_t again = channels.count(); again != count) {
      trial.violate(fmt::format("{} channels of {}, and {} at the second call", count, channels.job().name(), again));
    }
  });
}

std::string problem_of(const tutti_algorithm_cost& cost, bool has_peers) {
  double work = 0;
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    for (const double value : {cost.wire[link], cost.gbs[link]}) {
      if (!std::isfinite(value) || value < 0) return fmt::format("wire or gbs of link {} is {}", link, value);
    }
    work += cost.hops[link] + cost.wire[link];
  }
  if (!std::isfinite(cost.memory) || cost.memory < 0) return fmt::format("memory is {}", cost.memory);
  if (has_peers && work <= 0) return "no link has hops or wire, but there are several ranks";
  return {};
}

/// The most peers that a step of the plans receives from or sends to.
uint32_t most_peers(Channels& channels, const Work& work) {
  uint32_t most = 0;
  for (uint32_t rank = 0; rank < channels.job().rank_count(); ++rank) {
    const auto plan = channels.plan(request_for(work, rank));
    if (!plan.ok()) continue;
    for (const tutti_plan_step& step : plan->steps) most = std::max<uint32_t>({most, step.recv_count, step.send_count});
  }
  return most;
}

void test_fans(Trial& trial, Channels& channels, const std::vector<Variant>& variants) {
  for (const Work& work : works(channels, variants)) {
    const auto cost = channels.cost(work.collective, work.variant);
    if (!cost.ok()) continue;
    const uint32_t most = most_peers(channels, work);
    if (most <= std::max(cost->fan, 1u)) continue;
    trial.violate(fmt::format("cost of {}, {}: fan is {}, but a step has {} peers",
                              to_string(static_cast<Collective>(work.collective)),
                              text_of(work, variants, channels.job()), cost->fan, most));
  }
}

void test_costs(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  const std::vector<Variant> variants = variants_of(trial);
  for_each_job(trial, jobs, [&](Channels& channels) {
    for (uint32_t variant = 0; variant < variants.size(); ++variant) {
      for (uint32_t collective = 0; collective < kCollectiveCount; ++collective) {
        if ((variants[variant].collectives >> collective & 1) == 0) continue;
        const auto cost = channels.cost(collective, variant);
        if (!cost.ok()) continue;
        const std::string problem = problem_of(*cost, channels.job().rank_count() > 1);
        if (problem.empty()) continue;
        trial.violate(fmt::format("cost of {}, {}: {}", to_string(static_cast<Collective>(collective)),
                                  text_of({variant, collective, 0, 0}, variants, channels.job()), problem));
      }
    }
    test_fans(trial, channels, variants);
  });
}

/// The network devices that the graph of a machine names.
std::set<uint32_t> devices_of(const topology::NodeGraph& graph) {
  std::set<uint32_t> devices = {TUTTI_NO_NET};
  for (uint32_t channel = 0; channel < graph.channel_count(); ++channel) {
    devices.insert({graph.net_in(channel), graph.net_out(channel)});
  }
  return devices;
}

void test_nets(Trial& trial) {
  const std::vector<Job> jobs = few_jobs();
  for_each_job(trial, jobs, [&](Channels& channels) {
    const Job& job = channels.job();
    for (uint32_t channel = 0; channel < channels.count(); ++channel) {
      for (uint32_t rank = 0; rank < job.rank_count(); ++rank) {
        const std::set<uint32_t> known = devices_of(channels.graphs()[job.node_of_rank[rank]]);
        for (uint32_t peer = 0; peer < job.rank_count(); ++peer) {
          if (job.node_of_rank[rank] == job.node_of_rank[peer]) continue;
          const tutti_channel_nets nets = channels.nets(channel, rank, peer);
          if (known.contains(nets.send) && known.contains(nets.receive)) continue;
          trial.violate(
              fmt::format("nets of channel {}, rank {} to rank {}, {}: devices {} and {}; the graph of the "
                          "machine names {}",
                          channel, rank, peer, job.name(), nets.send, nets.receive,
                          known.size() == 1 ? "none" : fmt::format("{}", fmt::join(known, ", "))));
        }
      }
    }
  });
}

/// The second call comes in a later second, so that a search by the clock gives a different graph.
void test_search_repeat(Trial& trial) {
  const std::vector<Job> jobs = all_jobs();
  std::vector<std::vector<std::byte>> before;
  for (int round = 0; round < 3; ++round) {
    size_t next = 0;
    for (const Job& job : jobs) {
      for (uint32_t rank = 0; rank < job.rank_count(); rank += 4) {
        const auto graph = search(trial, job, rank);
        std::vector<std::byte> bytes = graph.ok() ? graph->encode() : std::vector<std::byte>();
        if (round == 0) {
          before.push_back(std::move(bytes));
        } else if (bytes != before[next++]) {
          trial.violate(
              fmt::format("search for rank {} of {}: call {} gives a different graph", rank, job.name(), round + 1));
        }
      }
    }
    const timespec part_of_a_second{0, 600'000'000};
    nanosleep(&part_of_a_second, nullptr);
  }
}

constexpr TrialRule kRules[] = {
    {{"ALG-1", "returns", "Every entry returns. An entry that has not returned for 10 s violates this rule."}},
    {{"ALG-2", "throws", "No exception leaves an entry (PLG-4)."}},
    {{"ALG-3", "reasons", "An entry that fails or declines gives its reason to host->fail (PLG-14)."}},
    {{"ALG-4", "crashes", "No entry ends the process."}},
    {{.number = "ALG-5",
      .name = "variants",
      .sentence = "The list of variants ends and stays the same. Each variant has a name and collectives that exist."},
     test_variants},
    {{.number = "ALG-6",
      .name = "search",
      .sentence = "search reports 1 to max_channels channels, and each names every rank of its machine once.",
      .seconds = 60},
     test_search},
    {{.number = "ALG-7",
      .name = "connect",
      .sentence = "connect makes 1 to max_channels channels, and channel_count gives the same number at each call.",
      .seconds = 60},
     test_connect},
};

constexpr TrialRule kLaterRules[] = {
    {{.number = "ALG-11",
      .name = "costs",
      .sentence = "Costs are finite and not negative, several ranks have hops or bytes on a link, and no step has more "
                  "peers than fan.",
      .seconds = 60},
     test_costs},
    {{.number = "ALG-12",
      .name = "nets",
      .sentence = "nets names no device that the graphs of the machines do not name."},
     test_nets},
    {{.number = "ALG-13",
      .name = "search-repeat",
      .sentence = "search gives the same graph for the same topology at each call and at any time.",
      .seconds = 60},
     test_search_repeat},
};

}  // namespace

std::span<const TrialRule> algorithm_rules() {
  return kRules;
}
std::span<const TrialRule> channel_rules() {
  return kLaterRules;
}

}  // namespace tutti::tools::plugin_test
