// SPDX-License-Identifier: Apache-2.0
// Chooses algorithm and protocol of a call. It lists the candidates (algorithm variant × protocol), and excludes
// candidates by the configuration, the rules, the capabilities and the back end. It asks the tuner for the remaining
// candidates, and can give the reason why each candidate won or lost. Selection and explanation are one piece of code.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "program/channels.h"
#include "tuner/back_end.h"
#include "tuner/plan_check.h"
#include "tutti/plugin/algorithm.h"
#include "tutti/plugin/protocol.h"
#include "tutti/plugin/tuner.h"
#include "tutti/types.h"

namespace tutti::tuner {

/// An algorithm as a communicator holds it.
struct Algorithm {
  struct Variant {
    std::string name;
    uint64_t collectives = 0;  ///< bits 1 << TUTTI_ALL_REDUCE ...
  };
  /// The calls for which the plans of a plan file are meant.
  struct Meant {
    uint32_t ranks = 1;
    uint64_t min_size = 0;  ///< bytes of a block
    uint64_t max_size = UINT64_MAX;
    uint64_t data_types = 0;  ///< bits 1 << DataType; 0: all
  };
  Algorithm(const program::AlgorithmPlugin& plugin, program::Instance connected);

  std::string name;
  const tutti_algorithm_ops* ops = nullptr;
  program::Instance instance;
  uint32_t channels = 1;
  std::vector<Variant> variants;
  std::optional<Meant> meant;  ///< of a plan file, whose path is `name`; nothing: a plugin
};

struct Protocol {
  std::string name;
  const tutti_protocol_ops* ops = nullptr;
  void* plugin = nullptr;
  tutti_protocol_properties properties{};
  /// Why the plugin declines the layout of a connection, by link; empty: it does not. A link that is declined is not in
  /// the properties.
  std::array<std::string, TUTTI_LINK_COUNT> declined{};
  std::array<tutti_slot_layout, TUTTI_LINK_COUNT> layouts{};  ///< of connections of host ranks; no slots: unknown
  /// CTAs of programs with strands that the GPU of each rank holds at the same time. Equal on all ranks.
  uint32_t strand_ctas = TUTTI_CUDA_MAX_CTAS;
};

using TunerInstance = std::unique_ptr<void, void (*)(void*)>;
inline TunerInstance no_tuner() {
  return {nullptr, [](void*) {}};
}

/// A network that the communicator uses.
struct Network {
  std::string name;
  double gbs = 0;                             ///< bandwidth of the slowest rank's fastest port
  double latency_us = 0;                      ///< the latency of the slowest rank's fastest port
  TunerInstance tuner_instance = no_tuner();  ///< with the figures of this network; null: that of the choices
};
/// A network that the configuration names, and that the communicator does not use.
struct UnusedNetwork {
  std::string name;
  std::string why;  ///< "it does not work on rank 1: ..."
};

/// The alternatives and criteria of the selector. The objects behind the pointers outlive it.
struct Choices {
  std::vector<Algorithm> algorithms;
  std::vector<Protocol> protocols;
  const tutti_tuner_ops* tuner = nullptr;
  TunerInstance tuner_instance = no_tuner();
  std::string tuner_name;
  std::vector<Network> networks;  ///< in order of preference; empty: the ranks use no network
  std::vector<UnusedNetwork> unused_networks;
  std::optional<uint32_t> network_inside_racks;  ///< index in `networks`, of all calls; nothing: no path has its own
  uint32_t links = 0;                            ///< bits 1 << TUTTI_LINK_*: the links between the ranks
  uint32_t device = 0;                ///< TUTTI_DEVICE_*: where the ranks' buffers are; 0: it does not matter
  bool on_gpu = false;                ///< whether the ranks are on GPUs; `device` may be 0 all the same
  const BackEnd* back_end = nullptr;  ///< executes the plans; null: without limits
  uint32_t ranks = 1;
  uint32_t nodes = 1;
  uint32_t max_channels = 1;
  bool proves_plans = false;  ///< a call fails if its plan is too large for a proof (check.plans)
};

/// The question: one call.
struct Question {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  uint64_t count = 0;       ///< elements of a block
  bool registered = false;  ///< all ranks' outputs lie in registered buffers that their peers reach
};

/// Send and receive have no algorithm plugin: their plan is one step.
inline constexpr uint32_t kNoAlgorithm = ~0u;

struct Decision {
  uint32_t algorithm = kNoAlgorithm;
  uint32_t variant = 0;
  uint32_t protocol = 0;
  uint32_t channels = 1;
  double predicted_us = 0;
  uint32_t network = 0;  ///< index in Choices::networks; counts between ranks that use a network
};

/// The selector's verdict on one candidate of a call.
struct Verdict {
  Decision decision;
  std::string name;      ///< "direct/two-shot × ll"
  std::string excluded;  ///< the reason; empty: the candidate competes
  std::string lists;     ///< why the back end runs the strands of its plans as lists; empty: it does not
};

/// Copies the cost that an algorithm states into the view of a candidate, which a tuner gets.
void set_cost(const tutti_algorithm_cost& cost, tutti_candidate& view);

/// Its decisions do not change during its life; any thread.
class Selector {
 public:
  Selector(const config::Config& config, Choices choices)
      : config_(config), choices_(std::move(choices)), plan_check_(choices_) {}
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;

  /// kUnsupported: the setting `protocol` names a protocol that does not run on the devices of the job, so no call can
  /// run.
  Status check() const;
  /// If no candidate is left: kConfig with the place of a rule that excludes the network, else kUnsupported with the
  /// verdicts in the text.
  Result<Decision> choose(const Question& question) const;
  /// All candidates. The chosen one is first if any competes; excluded candidates are last.
  Result<std::vector<Verdict>> verdicts(const Question& question) const;
  /// The same as text, one candidate per line.
  Result<std::string> explain(const Question& question) const;
  /// The reason why a variant of an algorithm cannot run a collective here, with every protocol; empty: it can.
  std::string why_not(uint32_t algorithm, uint32_t variant, Collective collective) const {
    return plan_check_.answer(algorithm, variant, collective).why_not;
  }

  /// "direct", or "p2p" for messages.
  std::string algorithm_name(const Decision& decision) const;
  /// "two-shot"; empty if the algorithm has a single variant.
  std::string variant_name(const Decision& decision) const;
  const Choices& choices() const { return choices_; }

 private:
  struct Candidate {
    Decision decision;
    tutti_algorithm_cost cost{};
    tutti_candidate view{};
    std::string excluded;  ///< the reason; empty: the candidate is not excluded
    std::string lists;     ///< as in Verdict
  };
  /// "direct/two-shot × ll"
  std::string name_of(const Decision& decision) const;
  /// The candidates to judge: of the variants that offer the collective, or of all variants.
  enum class Listed { kOffering, kAll };
  Result<std::vector<Candidate>> judge(const Question& question, Listed listed) const;
  std::vector<Candidate> list(const Question& question, Listed listed) const;
  bool offers(uint32_t algorithm, uint32_t variant, Collective collective) const;
  tutti_candidate view_of(const Decision& decision, const config::Rule* rule) const;
  void exclude(const Question& question, Candidate& candidate) const;
  std::string excluded_by_purpose(const Question& question, uint32_t algorithm) const;
  std::string excluded_by_settings(const Question& question, const Candidate& candidate) const;
  std::string excluded_by_rules(const Question& question, Candidate& candidate) const;
  std::optional<uint32_t> network_by_rule(const config::Rule& rule) const;
  Status network_excluded(const Question& question) const;
  std::string networks_in_use() const;
  /// Whether `named`, a value of `algorithm`, names a candidate.
  bool names(const std::string& named, const Decision& decision) const;
  /// Whether `named` names a plan file that is meant for the call.
  bool names_meant_file(const std::string& named, const Question& question) const;
  /// The first rule that matches the call. A rule that names a network matches only where ranks use a network. A rule
  /// that chooses plan files matches only calls for which one of the files is meant.
  const config::Rule* matching_rule(const Question& question) const;
  std::string why_lists(const Question& question, const Candidate& candidate) const;
  std::string excluded_by_device(const Protocol& protocol) const;
  std::string excluded_by_ranks(const Candidate& candidate) const;
  std::string excluded_by_links(const Candidate& candidate) const;
  std::string excluded_by_registration(const Question& question, const Candidate& candidate) const;
  /// Sets the candidate's cost if the algorithm gives a cost. The reason why not, if the algorithm declines.
  Result<std::string> excluded_by_cost(const Question& question, Candidate& candidate) const;
  std::string excluded_by_room(const Protocol& protocol, uint32_t message_chunks) const;
  std::string excluded_by_plans(const Question& question, Candidate& candidate) const;
  Status ask_tuner(const Question& question, const config::Rule* rule, std::vector<Candidate>& candidates) const;
  Status ask_tuner(const Question& question, const config::Rule* rule, std::span<Candidate* const> candidates) const;
  void* tuner_of(uint32_t network) const;
  double channel_gbs(const Decision& decision) const;
  double filled_chunks(const Question& question, const Decision& decision) const;
  Status cost_of_copies(const Question& question, const Decision& decision, tutti_algorithm_cost& cost) const;
  static std::optional<size_t> best(const std::vector<Candidate>& candidates);
  std::vector<Verdict> in_order(const std::vector<Candidate>& candidates) const;

  const config::Config& config_;
  Choices choices_;
  mutable PlanCheck plan_check_;  // only remembers
};

}  // namespace tutti::tuner
