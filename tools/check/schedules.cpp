// SPDX-License-Identifier: Apache-2.0
#include "tools/check/schedules.h"

namespace tutti::check {

using sdk::Buffer;
using sdk::PlanBuilder;

void ring_all_reduce(PlanBuilder& plan, uint32_t rank, uint32_t ranks) {
  const uint32_t next = (rank + 1) % ranks;
  const uint32_t prev = (rank + ranks - 1) % ranks;
  const auto chunk = [&](uint32_t step) { return (rank + 2 * ranks - step) % ranks; };
  plan.step().own(Buffer::kInput, chunk(0)).send(next);
  for (uint32_t s = 1; s < ranks - 1; ++s) plan.step().recv(prev).own(Buffer::kInput, chunk(s)).send(next);
  plan.step().recv(prev).own(Buffer::kInput, chunk(ranks - 1)).final().to_output(chunk(ranks - 1)).send(next);
  for (uint32_t s = ranks; s < 2 * ranks - 2; ++s) plan.step().recv(prev).to_output(chunk(s)).send(next);
  plan.step().recv(prev).to_output(chunk(2 * ranks - 2));
}

void two_shot_all_reduce(PlanBuilder& plan, uint32_t rank, uint32_t ranks) {
  auto& scatter = plan.step().own(Buffer::kInput, 0);
  for (uint32_t k = 1; k < ranks; ++k) scatter.scatter((rank + k) % ranks, (rank + k) % ranks);
  auto& fold = plan.step().own(Buffer::kInput, rank).final().to_output(rank);
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    if (peer != rank) fold.recv(peer).send(peer);
  }
  auto& gather = plan.step();
  for (uint32_t k = 1; k < ranks; ++k) gather.gather((rank + k) % ranks, (rank + k) % ranks);
}

}  // namespace tutti::check
