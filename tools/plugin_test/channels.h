// SPDX-License-Identifier: Apache-2.0
// An algorithm under test, connected over a topology.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program/channels.h"
#include "program/plan.h"
#include "tools/plugin_test/jobs.h"
#include "tools/plugin_test/trial.h"

namespace tutti::tools::plugin_test {

struct Variant {
  std::string name;
  uint64_t collectives = 0;
};

/// The variants that the plugin lists. A list that does not end violates its rule.
std::vector<Variant> variants_of(Trial& trial);

/// The channels of one topology.
class Channels {
 public:
  /// Searches on one rank of each machine, and connects. Failures violate the rules of search and connect, except that
  /// the plugin may decline the topology.
  Channels(Trial& trial, const Job& job);

  bool is_declined() const { return instance_ == nullptr; }
  const Job& job() const { return job_; }
  const std::vector<topology::NodeGraph>& graphs() const { return graphs_; }
  uint32_t count();
  /// The plan with its repeats. Codes other than kUnsupported violate the rule of plans.
  Result<program::Plan> plan(const tutti_plan_request& request);
  /// Does the same, and returns all failures. Any thread.
  Result<program::Plan> ask(const tutti_plan_request& request) const;
  Result<tutti_algorithm_cost> cost(uint32_t collective, uint32_t variant);
  tutti_channel_nets nets(uint32_t channel, uint32_t rank, uint32_t peer);

 private:
  Trial& trial_;
  const Job& job_;
  std::vector<topology::NodeGraph> graphs_;
  program::Instance instance_{nullptr, [](void*) {}};
};

/// The graph that search reports for the machine of `rank`; a failure violates the rule of search. kUnsupported: the
/// plugin declines the topology.
Result<topology::NodeGraph> search(Trial& trial, const Job& job, uint32_t rank);

/// Requests for all plans of a topology. With many ranks, only some roots and channels.
struct Work {
  uint32_t variant, collective, root, channel;
};
std::vector<Work> works(Channels& channels, const std::vector<Variant>& variants);
tutti_plan_request request_for(const Work& work, uint32_t rank);

/// Calls `visit` with the channels of each topology that the plugin does not decline. If it declines all, the rule is
/// skipped.
void for_each_job(Trial& trial, const std::vector<Job>& jobs, const std::function<void(Channels&)>& visit);

/// "all_reduce/two-shot, root 2, channel 0, 5 ranks on 2 machines".
std::string text_of(const Work& work, const std::vector<Variant>& variants, const Job& job);
/// The first difference of two plans, for texts.
std::string difference(const program::Plan& first, const program::Plan& second);
/// A hash of all of a plan.
uint64_t digest(const program::Plan& plan);

}  // namespace tutti::tools::plugin_test
