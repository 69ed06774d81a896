// SPDX-License-Identifier: Apache-2.0
#include "communicator/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "communicator/state.h"

namespace tutti {
namespace communicator {
namespace {

/// The calls of one communicator in a group: collectives in order, then all sends and receives together. All calls go
/// to the first of their streams. For all these streams, they count as one call.
struct Share {
  std::shared_ptr<Communicator::State> state;
  std::vector<backend::Call> collectives;
  std::vector<backend::Call> messages;
  std::vector<Stream> streams;
  Status status;
  bool is_here = true;  ///< runs on the thread that made the calls
  bool has_gathered = false;

  void add(backend::Call call) {
    if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) streams.push_back(call.stream);
    call.stream = streams.front();
    (call.collective == Collective::kSendRecv ? messages : collectives).push_back(call);
  }

  /// On the thread that made the calls. A group may have begun before a fork, and end in the child.
  void gather() {
    status = state->check_process();
    if (status.ok() && !is_here) status = leave_thread();
    if (status.ok()) status = state->gather(streams);
    has_gathered = status.ok();
  }

  /// After gather(), on the thread that made the calls if is_here.
  void run() {
    if (!has_gathered) return;
    status = run_calls();
    if (is_here) release();
  }

  /// On the thread that made the calls, after run().
  void release() {
    if (!has_gathered) return;
    has_gathered = false;
    const Status released = state->release(streams);
    if (status.ok()) status = released;
  }

 private:
  /// On a different thread, the calls' stream may mean a different stream.
  Status leave_thread() {
    TUTTI_ASSIGN(const Stream common, state->common_stream(streams.front()));
    if (common == streams.front()) return {};
    streams.insert(streams.begin(), common);
    for (backend::Call& call : collectives) call.stream = common;
    for (backend::Call& call : messages) call.stream = common;
    return {};
  }

  Status run_calls() {
    for (const backend::Call& call : collectives) TUTTI_TRY(state->run(call));
    return messages.empty() ? Status() : state->run_messages(messages);
  }
};

struct Group {
  int depth = 0;
  std::vector<Share> shares;
};

thread_local Group group;

/// Whether both have calls on one GPU. A GPU may run kernels of different streams in the order in which they were
/// enqueued: streams share the hardware queues. Ranks of one communicator wait for each other.
bool meet(const Share& a, const Share& b) {
  const Communicator::State& one = *a.state;
  const Communicator::State& other = *b.state;
  return one.takes_streams() && one.device() == other.device() && one.secret() != other.secret();
}

/// Brings communicators into an order that is equal on all ranks, for every order of their calls. Two ranks that
/// connect the communicators in different orders would wait for each other. So would ranks whose GPUs run their kernels
/// in different orders.
void put_in_order(std::vector<Share>& shares) {
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.state->secret() < b.state->secret(); });
}

/// The thread of each share. Shares of one thread run in order.
std::vector<size_t> threads_of(const std::vector<Share>& shares) {
  std::vector<size_t> threads(shares.size());
  for (size_t i = 0; i < shares.size(); ++i) {
    threads[i] = i;
    for (size_t j = 0; j < i; ++j) {
      if (!meet(shares[i], shares[j])) continue;
      const auto [kept, gone] = std::minmax({threads[i], threads[j]});
      std::replace(threads.begin(), threads.end(), size_t{gone}, size_t{kept});
    }
  }
  return threads;
}

/// The communicators of a thread that cannot be started fail on all ranks.
void fail(std::vector<Share>& shares, const std::vector<size_t>& threads, size_t thread, const std::system_error& why) {
  for (size_t i = 0; i < shares.size(); ++i) {
    if (threads[i] != thread || !shares[i].has_gathered) continue;
    shares[i].has_gathered = false;
    shares[i].status = shares[i].state->fail_everywhere(Status(
        Code::kSystem, fmt::format("cannot start a thread for the calls of a group: {}; raise the limit of processes "
                                   "(ulimit -u, or pids.max of the container)",
                                   why.what())));
  }
}

}  // namespace

bool defer(const std::shared_ptr<Communicator::State>& state, const backend::Call& call) {
  if (group.depth == 0) [[likely]]
    return false;
  auto share = std::find_if(group.shares.begin(), group.shares.end(), [&](const Share& s) { return s.state == state; });
  if (share == group.shares.end()) {
    share = group.shares.insert(share, Share());
    share->state = state;
  }
  share->add(call);
  return true;
}

Status run_now(Communicator::State& state, const backend::Call& call) {
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
  communicator::put_in_order(shares);
  // Communicators wait for each other through their peers, so each independent share gets a thread of its own. The
  // first share runs on this thread.
  const std::vector<size_t> threads = communicator::threads_of(shares);
  for (size_t i = 0; i < shares.size(); ++i) shares[i].is_here = threads[i] == 0;
  for (communicator::Share& share : shares) share.gather();
  const auto run = [&](size_t first) {
    for (size_t i = first; i < shares.size(); ++i) {
      if (threads[i] == first) shares[i].run();
    }
  };
  std::vector<std::thread> started;
  started.reserve(shares.size());
  for (size_t i = 1; i < shares.size(); ++i) {
    if (threads[i] != i) continue;
    try {
      started.emplace_back([&run, i] { run(i); });
    } catch (const std::system_error& error) {
      communicator::fail(shares, threads, i, error);
    }
  }
  if (!shares.empty()) run(0);
  for (std::thread& thread : started) thread.join();
  for (communicator::Share& share : shares) share.release();
  for (const communicator::Share& share : shares) TUTTI_TRY(share.status);
  return {};
}

}  // namespace tutti
