// SPDX-License-Identifier: Apache-2.0
// Plans for tests: from the built algorithm plugins, through their C tables, and by hand.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "program/plan.h"
#include "tutti/plugin/abi.h"
#include "tutti/plugin/algorithm.h"
#include "tutti/sdk/plan_builder.h"

namespace tutti::test {

/// Which node each rank is on.
using NodeOfRank = std::vector<uint32_t>;

/// `ranks` ranks on `nodes` nodes, in order, as evenly as possible.
NodeOfRank split(uint32_t ranks, uint32_t nodes);

/// An opened algorithm plugin. Fails the test run if it cannot be loaded.
class Algorithm {
 public:
  /// `name`: "ring". `folder`: of the build, with the file of the plugin.
  explicit Algorithm(const std::string& name, const std::string& folder = "lib/tutti/plugins");
  ~Algorithm();
  Algorithm(const Algorithm&) = delete;

  const std::string& name() const { return name_; }
  const tutti_algorithm_ops& ops() const { return *static_cast<const tutti_algorithm_ops*>(plugin_.ops); }
  void* self() const { return self_; }

  struct Variant {
    std::string name;
    uint64_t collectives;
    bool can(uint32_t collective) const { return (collectives >> collective & 1) != 0; }
  };
  std::vector<Variant> variants() const;
  /// The number of the variant with this name.
  uint32_t variant(const std::string& name) const;

 private:
  std::string name_;
  tutti_plugin plugin_ = {};
  tutti_host host_ = {};
  void* self_ = nullptr;
};

/// An algorithm connected over a layout, as a communicator would do it: search per node, then connect.
class Connected {
 public:
  Connected(const Algorithm& algorithm, const NodeOfRank& node_of_rank, uint32_t max_channels = 1);
  ~Connected();
  Connected(const Connected&) = delete;

  uint32_t channels() const { return algorithm_.ops().channel_count(instance_); }
  /// All ranks' plans, validated.
  Result<std::vector<program::Plan>> plans(uint32_t collective, uint32_t variant, uint32_t root = 0,
                                           uint32_t channel = 0);
  tutti_algorithm_cost cost(uint32_t collective, uint32_t variant) const;

 private:
  const Algorithm& algorithm_;
  uint32_t rank_count_;
  void* instance_ = nullptr;
};

/// A topology over a layout: device links of 350 GB/s and 1 µs in a node, a network of 50 GB/s and 5 µs.
tutti_topology topology_of(const NodeOfRank& node_of_rank);

/// A plan written by hand.
program::Plan write_plan(uint32_t collective, uint32_t ranks, uint32_t rank, uint32_t chunks,
                         const std::function<void(sdk::PlanBuilder&)>& write);

/// Plans of `ranks` ranks, each written by `write`.
std::vector<program::Plan> write_plans(uint32_t collective, uint32_t ranks, uint32_t chunks,
                                       const std::function<void(sdk::PlanBuilder&, uint32_t)>& write);

/// One set of plans and where it comes from.
struct Sample {
  std::string name;  ///< "ring all_reduce, 5 ranks on 2 nodes, root 0"
  std::vector<program::Plan> plans;
};

/// Every variant and collective of the built plugins over some layouts.
std::vector<Sample> samples(const std::vector<uint32_t>& rank_counts, bool all_roots);
/// The plans of the first sample with this name, "direct two-shot all_reduce". Fails the test if there is none.
std::vector<program::Plan> plans_of(const std::string& name, uint32_t ranks);

bool can_run_in_place(const program::Plan& plan);
/// All plans as text. A malformed plan is named as such.
std::string listing(const std::vector<program::Plan>& plans);

/// The text with `to` in place of the first `from`. Fails the test if there is none.
std::string replaced(std::string text, const std::string& from, const std::string& to);
/// Why a plan file with this text, called "p", cannot be read or proved; empty: it is right.
std::string fault(const std::string& text);

}  // namespace tutti::test
