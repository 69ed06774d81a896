// SPDX-License-Identifier: Apache-2.0
#include "program/verify/verify.h"

#include <fmt/format.h>

#include "program/verify/contents.h"

namespace tutti::program {
namespace {

/// The waits between ranks over several loops, without contents.
class Waits : public Run {
 public:
  using Run::Run;

 protected:
  Status on_send(uint32_t, uint32_t) override { return {}; }
  Status on_gather(uint32_t, uint32_t) override { return {}; }
};

/// Enough for a rank to run one loop ahead of a peer, and to find slots that the loop before has filled.
constexpr uint32_t kLoops = 3;

Status check_set(std::span<const Plan> plans) {
  if (plans.empty()) return {Code::kInvalidArgument, "there is no plan to verify"};
  const Plan& first = plans[0];
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans[rank];
    const auto differ = [&](const char* field, uint64_t value, uint64_t expected) {
      if (value == expected) return Status();
      return Status(Code::kInvalidArgument,
                    fmt::format("plan {}: {} is {}, expected {}", rank, field, value, expected));
    };
    TUTTI_TRY(differ("rank_count", plan.rank_count, plans.size()));
    TUTTI_TRY(differ("rank", plan.rank, rank));
    TUTTI_TRY(differ("collective", static_cast<uint32_t>(plan.collective), static_cast<uint32_t>(first.collective)));
    TUTTI_TRY(differ("root", plan.root, first.root));
    TUTTI_TRY(differ("channel", plan.channel, first.channel));
    TUTTI_TRY(differ("chunks", plan.chunks, first.chunks));
    TUTTI_TRY(differ("message_chunks", plan.message_chunks, first.message_chunks));
    TUTTI_TRY(validate(plan.view()).with_context(fmt::format("rank {}", rank)));
  }
  return {};
}

}  // namespace

Status verify(std::span<const Plan> all_ranks, const VerifyOptions& options, std::optional<StepPlace>* place) {
  const auto placed = [&](Status verdict, const Run& run) {
    if (!verdict.ok() && place != nullptr) *place = run.failed_at();
    return verdict;
  };
  TUTTI_TRY(check_set(all_ranks));
  if (options.slots == 0) return {Code::kInvalidArgument, "slots: a connection has at least one"};
  if (options.in_place && all_ranks[0].collective == Collective::kAllToAll) {
    return {Code::kUnsupported, "all_to_all does not run in place: pass different input and output buffers"};
  }
  const Connections connections(all_ranks);
  Contents contents(all_ranks, connections, options.in_place);
  TUTTI_TRY(placed(contents.finish(), contents));
  TUTTI_TRY(placed(contents.check_outputs(), contents));
  Waits waits(all_ranks, connections, options.slots, kLoops);
  return placed(waits.finish(), waits).with_context(fmt::format("with {} slot(s)", options.slots));
}

}  // namespace tutti::program
