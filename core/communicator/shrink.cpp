// SPDX-License-Identifier: Apache-2.0
// A new communicator of the ranks that remain.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "bootstrap/exchange.h"
#include "bootstrap/rank_list.h"
#include "communicator/state.h"

namespace tutti {
namespace {

using Ranks = std::vector<int>;

std::string text_of_excluded(const Ranks& excluded) {
  return excluded.empty() ? "no rank" : bootstrap::rank_list(excluded);
}

/// The ranks to exclude, ascending and each once.
Result<Ranks> read_excluded(std::span<const int> list, int rank, int size) {
  for (const int excluded : list) {
    if (excluded < 0 || excluded >= size) {
      return Status(Code::kInvalidArgument,
                    fmt::format("shrink: no rank {} to exclude; the communicator has {} ranks", excluded, size));
    }
    if (excluded == rank) {
      return Status(Code::kInvalidArgument,
                    fmt::format("shrink: rank {} excludes itself; only ranks that remain call shrink", rank));
    }
  }
  Ranks excluded(list.begin(), list.end());
  std::sort(excluded.begin(), excluded.end());
  excluded.erase(std::unique(excluded.begin(), excluded.end()), excluded.end());
  return excluded;
}

Ranks ranks_without(const Ranks& excluded, int size) {
  Ranks all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  Ranks members;
  std::set_difference(all.begin(), all.end(), excluded.begin(), excluded.end(), std::back_inserter(members));
  return members;
}

/// The failure of a meeting names ranks by their number in the new communicator.
std::string describe_meeting(int rank, const Ranks& excluded, const Ranks& members) {
  Ranks numbers(members.size());
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::string renamed = members == numbers ? "" : fmt::format(" as {}", bootstrap::rank_list(numbers));
  return fmt::format("shrink: rank {} excludes {}, so {} meet{}", rank, text_of_excluded(excluded),
                     bootstrap::rank_list(members), renamed);
}

/// All members must exclude the same ranks.
Status compare(bootstrap::Bootstrap& meeting, int rank, const Ranks& excluded, base::Time deadline) {
  Ranks mine{rank};
  mine.insert(mine.end(), excluded.begin(), excluded.end());
  TUTTI_ASSIGN(const auto all, meeting.all_gather(std::as_bytes(std::span(mine)), deadline));
  std::vector<Ranks> lists;
  for (const auto& bytes : all) {
    Ranks& list = lists.emplace_back(bytes.size() / sizeof(int));
    if (list.empty()) return Status(Code::kMismatch, "shrink: ranks meet that make different calls");
    std::memcpy(list.data(), bytes.data(), list.size() * sizeof(int));
  }
  for (const Ranks& list : lists) {
    if (std::equal(list.begin() + 1, list.end(), lists[0].begin() + 1, lists[0].end())) continue;
    return Status(Code::kMismatch,
                  fmt::format("shrink: the ranks exclude different ranks: rank {} excludes {}, rank {} excludes {}; "
                              "all ranks that remain must pass the same list",
                              lists[0][0], text_of_excluded({lists[0].begin() + 1, lists[0].end()}), list[0],
                              text_of_excluded({list.begin() + 1, list.end()})));
  }
  return {};
}

}  // namespace

Result<UniqueId> Communicator::State::meet_again(const std::vector<int>& excluded, const std::vector<int>& members) {
  const std::string interfaces = config_.joined("bootstrap.interface");
  if (members.size() == 1) return UniqueId::create(interfaces);
  if (reunion_ == nullptr) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("shrink: bootstrap.shrink is false ({}), so the ranks have no place to meet again",
                              config_.origin("bootstrap.shrink")));
  }
  const base::Time deadline = base::time_in(config_.duration("timeouts.bootstrap"));
  const auto loss = std::chrono::duration_cast<base::Milliseconds>(config_.duration("timeouts.peer_loss"));
  auto joined = reunion_->meet(members, deadline, loss);
  if (!joined.ok()) return joined.status().with_context(describe_meeting(rank_, excluded, members));
  bootstrap::Bootstrap& meeting = **joined;
  TUTTI_TRY(compare(meeting, rank_, excluded, deadline));
  TUTTI_TRY(reunion_->renew(meeting, members, deadline));
  // All ranks take the id of the first member. Only this member serves an id.
  UniqueId id;
  Status made;
  if (members.front() == rank_) {
    auto created = UniqueId::create(interfaces);
    made = created.status();
    if (created.ok()) id = *created;
  }
  TUTTI_ASSIGN(const std::vector<UniqueId> ids, bootstrap::exchange(meeting, id, deadline));
  TUTTI_TRY(made);
  return ids.front();
}

Result<std::shared_ptr<Communicator::State>> Communicator::State::shrink(std::span<const int> list, ShrinkMode mode,
                                                                         config::Config config) {
  TUTTI_ASSIGN(const Ranks excluded, read_excluded(list, rank_, size_));
  const Ranks members = ranks_without(excluded, size_);
  if (mode == ShrinkMode::kAbort) {
    abort(fmt::format("rank {} shrinks the communicator and excludes {}", rank_, text_of_excluded(excluded)));
  }
  TUTTI_ASSIGN(const UniqueId id, meet_again(excluded, members));
  const auto rank = std::find(members.begin(), members.end(), rank_) - members.begin();
  return create(id, static_cast<int>(rank), static_cast<int>(members.size()), std::move(config), make_backend_);
}

Result<Communicator> Communicator::shrink(std::span<const int> excluded, ShrinkMode mode,
                                          const std::optional<Options>& options) {
  TUTTI_TRY(state_->check_process());
  TUTTI_ASSIGN(config::Config config, state_->config_for(options));
  TUTTI_ASSIGN(std::shared_ptr<State> state, state_->shrink(excluded, mode, std::move(config)));
  return Communicator(std::move(state));
}

}  // namespace tutti
