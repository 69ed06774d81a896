// SPDX-License-Identifier: Apache-2.0
#include "program/passes/split_messages.h"

#include <utility>

#include "program/peer_pool.h"

namespace tutti::program {
namespace {

bool gathers(const tutti_plan_step& step) {
  return (step.flags & TUTTI_STEP_GATHER) != 0;
}
bool scatters(const tutti_plan_step& step) {
  return (step.flags & TUTTI_STEP_SCATTER) != 0;
}

class Splitter {
 public:
  explicit Splitter(const Plan& plan) : plan_(plan), out_(plan), pool_(out_.peers) {
    out_.steps.clear();
    out_.peers.clear();
    out_.ranges.clear();
    out_.message_chunks = 1;
  }

  Result<Plan> run() {
    for (const tutti_plan_step& step : plan_.steps) {
      if (gathers(step) || scatters(step)) {
        TUTTI_TRY(add_exchange(step));
      } else {
        TUTTI_TRY(add_fold(step));
      }
    }
    return std::move(out_);
  }

 private:
  Status add_fold(const tutti_plan_step& step) {
    for (uint32_t i = 0; i < plan_.range(step).count; ++i) {
      tutti_plan_step one = chunk_of(step, i);
      TUTTI_TRY(pool_.intern(plan_.recv(step), one.recv_begin));
      TUTTI_TRY(pool_.intern(plan_.send(step), one.send_begin));
      out_.steps.push_back(one);
    }
    return {};
  }

  Status add_exchange(const tutti_plan_step& step) {
    const bool copies = step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
    const uint32_t count = plan_.range(step).count;
    for (uint32_t i = 0; i < count && (step.send_count > 0 || copies); ++i) TUTTI_TRY(add_sends(step, i));
    for (uint32_t i = 0; i < count && step.recv_count > 0; ++i) TUTTI_TRY(add_receives(step, i));
    return {};
  }

  /// The sends of chunk `i`, and its copy.
  Status add_sends(const tutti_plan_step& step, uint32_t i) {
    tutti_plan_step one = chunk_of(step, i);
    one.recv_count = one.recv_begin = 0;
    one.gather_buffer = 0;
    one.flags = scatters(step) ? TUTTI_STEP_SCATTER : TUTTI_STEP_GATHER;
    std::vector<tutti_plan_peer> to(plan_.send(step).begin(), plan_.send(step).end());
    if (scatters(step)) move(to, step.source, plan_.range(step).source_stride, i);
    TUTTI_TRY(pool_.intern(to, one.send_begin));
    out_.steps.push_back(one);
    return {};
  }

  Status add_receives(const tutti_plan_step& step, uint32_t i) {
    tutti_plan_step one{};
    one.flags = TUTTI_STEP_GATHER;
    one.gather_buffer = step.gather_buffer;
    one.recv_count = step.recv_count;
    std::vector<tutti_plan_peer> from(plan_.recv(step).begin(), plan_.recv(step).end());
    move(from, gather_buffer_of(step), plan_.range(step).destination_stride, i);
    TUTTI_TRY(pool_.intern(from, one.recv_begin));
    out_.steps.push_back(one);
    return {};
  }

  /// The step with chunk `i` of its lists.
  tutti_plan_step chunk_of(const tutti_plan_step& step, uint32_t i) const {
    const tutti_plan_range range = plan_.range(step);
    tutti_plan_step one = step;
    one.source_chunk = plan_.chunk_at(step.source, step.source_chunk, range.source_stride, i);
    if (step.destination == TUTTI_BUFFER_NONE) return one;  // the stride is that of chunks that the step gathers
    one.destination_chunk = plan_.chunk_at(step.destination, step.destination_chunk, range.destination_stride, i);
    return one;
  }
  void move(std::vector<tutti_plan_peer>& peers, uint32_t buffer, uint32_t stride, uint32_t i) const {
    for (tutti_plan_peer& peer : peers) peer.chunk = plan_.chunk_at(buffer, peer.chunk, stride, i);
  }

  const Plan& plan_;
  Plan out_;
  PeerPool pool_;
};

}  // namespace

Result<Plan> split_messages(const Plan& plan) {
  return Splitter(plan).run();
}

}  // namespace tutti::program
