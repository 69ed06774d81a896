// SPDX-License-Identifier: Apache-2.0
#include "communicator/group.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "communicator/state.h"

namespace tutti {
namespace communicator {
namespace {

/// The calls of one communicator in a group: collectives in order, then all sends and receives together.
struct Share {
  std::shared_ptr<Communicator::State> state;
  std::vector<Call> collectives;
  std::vector<Call> messages;
  Status status;

  void run() {
    for (const Call& call : collectives) {
      status = state->run(call);
      if (!status.ok()) return;
    }
    if (!messages.empty()) status = state->run_messages(messages);
  }
};

struct Group {
  int depth = 0;
  std::vector<Share> shares;
};

thread_local Group group;

/// Whether both have calls on one stream of a GPU. Every GPU has a default stream, of the same name.
bool meet(const Share& a, const Share& b) {
  if (!a.state->on_gpu() || a.state->gpu() != b.state->gpu()) return false;
  const auto any = [](const Share& share, const auto& wanted) {
    return std::any_of(share.collectives.begin(), share.collectives.end(), wanted) ||
           std::any_of(share.messages.begin(), share.messages.end(), wanted);
  };
  return any(a, [&](const Call& of_a) { return any(b, [&](const Call& of_b) { return of_a.stream == of_b.stream; }); });
}

/// The lane of each share. Those of one lane run in the order of the group, which is the same on all ranks: a stream
/// runs kernels one after the other, so that two ranks which enqueue them in different orders wait for each other.
std::vector<size_t> lanes_of(const std::vector<Share>& shares) {
  std::vector<size_t> lanes(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    lanes[i] = i;
    for (size_t j = 0; j < i; ++j) {
      if (!meet(shares[i], shares[j])) continue;
      const auto [kept, gone] = std::minmax({lanes[i], lanes[j]});
      std::replace(lanes.begin(), lanes.end(), size_t{gone}, size_t{kept});
    }
  }
  return lanes;
}

}  // namespace

bool defer(const std::shared_ptr<Communicator::State>& state, const Call& call) {
  if (group.depth == 0) [[likely]]
    return false;
  auto share = std::find_if(group.shares.begin(), group.shares.end(), [&](const Share& s) { return s.state == state; });
  if (share == group.shares.end()) share = group.shares.insert(share, Share{state, {}, {}, {}});
  (call.collective == Collective::kSendRecv ? share->messages : share->collectives).push_back(call);
  return true;
}

Status run_now(Communicator::State& state, const Call& call) {
  if (call.collective == Collective::kSendRecv) return state.run_messages({&call, 1});
  return state.run(call);
}

}  // namespace communicator

Status group_start() {
  ++communicator::group.depth;
  return {};
}

Status group_end() {
  using communicator::group;
  if (group.depth == 0) return Status(Code::kFailedPrecondition, "group_end without group_start in this thread");
  if (--group.depth > 0) return {};
  std::vector<communicator::Share> shares = std::move(group.shares);
  group.shares.clear();
  // Communicators wait for each other through their peers, so each lane gets a thread of its own.
  const std::vector<size_t> lanes = communicator::lanes_of(shares);
  const auto run = [&](size_t lane) {
    for (size_t i = lane; i < shares.size(); ++i) {
      if (lanes[i] == lane) shares[i].run();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < shares.size(); ++i) {
    if (lanes[i] == i) threads.emplace_back([&run, i] { run(i); });
  }
  if (!shares.empty()) run(0);
  for (std::thread& thread : threads) thread.join();
  for (const communicator::Share& share : shares) TUTTI_TRY(share.status);
  return {};
}

}  // namespace tutti
