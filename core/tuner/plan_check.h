// SPDX-License-Identifier: Apache-2.0
// Whether the plans of a candidate can be made and executed.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "program/plan.h"
#include "tutti/plugin/algorithm.h"
#include "tutti/types.h"

namespace tutti::tuner {

struct Algorithm;
struct Choices;

/// Asks algorithms for their plans and the back end whether it runs them. Each answer is kept. Any thread.
class PlanCheck {
 public:
  /// `choices` outlive this object.
  explicit PlanCheck(const Choices& choices) : choices_(choices) {}

  /// Why a variant of an algorithm cannot run a collective; empty where nothing is known against it.
  struct Answer {
    std::string why_not;          ///< with any protocol
    uint32_t most_strands = 1;    ///< the most of any plan; set only for back ends with limits
    std::string why_lists;        ///< why the strands run as a list (BackEnd::why_lists); empty: beside each other
    uint32_t chunks = 1;          ///< of a block
    uint32_t message_chunks = 1;  ///< of the longest message
    std::string why_not_small;    ///< with protocols without large_launches; empty if why_not is not
  };
  Answer answer(uint32_t algorithm, uint32_t variant, Collective collective);

 private:
  Answer ask(uint32_t algorithm, uint32_t variant, Collective collective) const;
  /// Why the first call would fail because the plans of all ranks are too large for a proof; empty: it would not.
  std::string why_not_proved(const Algorithm& algorithm, const tutti_plan_request& request,
                             const program::Plan& zero) const;
  void ask_for_root(uint32_t algorithm, uint32_t variant, Collective collective, uint32_t root, Answer& answer) const;

  const Choices& choices_;
  std::mutex mutex_;
  std::map<std::tuple<uint32_t, uint32_t, Collective>, Answer> answers_;
};

}  // namespace tutti::tuner
