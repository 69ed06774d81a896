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
  // Communicators wait for each other through their peers, so each gets a thread of its own.
  std::vector<std::thread> threads;
  for (size_t i = 1; i < shares.size(); ++i) threads.emplace_back([&share = shares[i]] { share.run(); });
  if (!shares.empty()) shares.front().run();
  for (std::thread& thread : threads) thread.join();
  for (const communicator::Share& share : shares) TUTTI_TRY(share.status);
  return {};
}

}  // namespace tutti
