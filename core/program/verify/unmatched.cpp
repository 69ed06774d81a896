// SPDX-License-Identifier: Apache-2.0
#include "program/verify/unmatched.h"

#include <fmt/format.h>

namespace tutti::program {
namespace {

/// Calls send(connection, place) and receive(connection, place) for each message of a loop, in the order of each rank.
template <class Send, class Receive>
void for_each_message(std::span<const Plan> plans, const Connections& connections, Send&& send, Receive&& receive) {
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    const std::vector<tutti_plan_step>& steps = plans[rank].steps;
    for (uint32_t s = 0; s < steps.size(); ++s) {
      for (uint32_t i = 0; i < steps[s].recv_count; ++i) {
        receive(connections.incoming(rank, steps[s].recv_begin + i), StepPlace{rank, s});
      }
      for (uint32_t i = 0; i < steps[s].send_count; ++i) {
        send(connections.outgoing(rank, steps[s].send_begin + i), StepPlace{rank, s});
      }
    }
  }
}

}  // namespace

std::vector<CounterExample> unmatched(std::span<const Plan> plans, const Connections& connections,
                                      StepNumbers numbers) {
  std::vector<uint64_t> sent(connections.size()), received(connections.size());
  for_each_message(
      plans, connections, [&](uint32_t connection, StepPlace) { ++sent[connection]; },
      [&](uint32_t connection, StepPlace) { ++received[connection]; });
  if (sent == received) return {};

  std::vector<CounterExample> found;
  std::vector<uint64_t> sends(sent.size()), receives(sent.size());  // so far
  const auto place_of = [&](StepPlace at) {
    return numbers.empty() ? at : StepPlace{at.rank, numbers[at.rank][at.step]};
  };
  for_each_message(
      plans, connections,
      [&](uint32_t connection, StepPlace at) {
        if (sent[connection] <= received[connection] || sends[connection]++ != received[connection]) return;
        const StepPlace place = place_of(at);
        found.push_back(
            {place, fmt::format("rank {} never receives {} of the messages that rank {} sends it, first the "
                                "message of step {}",
                                connections.to(connection), sent[connection] - received[connection],
                                connections.from(connection), place.step)});
      },
      [&](uint32_t connection, StepPlace at) {
        if (received[connection] <= sent[connection] || receives[connection]++ != sent[connection]) return;
        const StepPlace place = place_of(at);
        found.push_back({place, fmt::format("rank {} waits in {} receives for messages that rank {} never sends it, "
                                            "first in step {}",
                                            connections.to(connection), received[connection] - sent[connection],
                                            connections.from(connection), place.step)});
      });
  return found;
}

}  // namespace tutti::program
