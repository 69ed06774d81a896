// SPDX-License-Identifier: Apache-2.0
// A new communicator of the ranks that remain.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "bootstrap/agreement.h"
#include "bootstrap/exchange.h"
#include "bootstrap/rank_list.h"
#include "communicator/own_interface.h"
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

/// The list of a member, as a value of fixed size: lists of many ranks would make a round too long.
struct Digest {
  int rank;        ///< the member, in the old communicator
  uint32_t count;  ///< excluded ranks
  uint64_t hash;
  bool same_list(const Digest& other) const { return count == other.count && hash == other.hash; }
};

/// The list of one member. Collective.
Result<Ranks> list_of(bootstrap::Bootstrap& meeting, int member, const Ranks& own, base::Time deadline) {
  TUTTI_ASSIGN(const auto bytes, meeting.broadcast(member, std::as_bytes(std::span(own)), deadline));
  Ranks list(bytes.size() / sizeof(int));
  std::memcpy(list.data(), bytes.data(), list.size() * sizeof(int));
  return list;
}

/// All members must exclude the same ranks. Collective.
Status compare(bootstrap::Bootstrap& meeting, int rank, const Ranks& excluded, base::Time deadline) {
  const Digest mine = {rank, static_cast<uint32_t>(excluded.size()),
                       bootstrap::hash(std::as_bytes(std::span(excluded)))};
  TUTTI_ASSIGN(const std::vector<Digest> all, bootstrap::exchange(meeting, mine, deadline));
  const auto other =
      std::find_if_not(all.begin(), all.end(), [&](const Digest& digest) { return digest.same_list(all[0]); });
  if (other == all.end()) return {};
  // All members see the same digests, so all of them make these calls.
  TUTTI_ASSIGN(const Ranks first, list_of(meeting, 0, excluded, deadline));
  TUTTI_ASSIGN(const Ranks second, list_of(meeting, static_cast<int>(other - all.begin()), excluded, deadline));
  return Status(Code::kMismatch,
                fmt::format("the ranks exclude different ranks: rank {} excludes {}, rank {} excludes {}; all ranks "
                            "that remain must pass the same list",
                            all[0].rank, text_of_excluded(first), other->rank, text_of_excluded(second)));
}

}  // namespace

Result<UniqueId> Communicator::State::meet_again(const std::vector<int>& excluded, const std::vector<int>& members) {
  if (members.size() == 1) return communicator::create_id(config_);
  if (reunion_ == nullptr) {
    return Status(Code::kFailedPrecondition,
                  fmt::format("bootstrap.shrink is false ({}), so the ranks have no place to meet again",
                              config_.origin("bootstrap.shrink")));
  }
  const base::Time deadline = base::time_in(config_.duration("timeouts.bootstrap"));
  const auto loss = std::chrono::duration_cast<base::Milliseconds>(config_.duration("timeouts.peer_loss"));
  TUTTI_ASSIGN(const auto meeting, reunion_->meet(members, deadline, loss));
  TUTTI_TRY(compare(*meeting, rank_, excluded, deadline));
  TUTTI_TRY(reunion_->renew(*meeting, members, deadline));
  // All ranks take the id of the first member. Only this member serves an id.
  const auto offer = communicator::offer_id(config_, members.front() == rank_);
  TUTTI_ASSIGN(const std::vector<std::byte> told, meeting->broadcast(0, offer.told(), deadline));
  TUTTI_TRY(offer.made);
  return communicator::read_id(told, members.front());
}

Result<std::shared_ptr<Communicator::State>> Communicator::State::shrink(std::span<const int> list, ShrinkMode mode,
                                                                         config::Config config) {
  TUTTI_ASSIGN(const Ranks excluded, read_excluded(list, rank_, size_));
  const Ranks members = ranks_without(excluded, size_);
  if (mode == ShrinkMode::kAbort) {
    abort(fmt::format("rank {} shrinks the communicator and excludes {}", rank_, text_of_excluded(excluded)));
  }
  const auto id = meet_again(excluded, members);
  if (!id.ok()) return id.status().with_context(describe_meeting(rank_, excluded, members));
  const auto rank = std::find(members.begin(), members.end(), rank_) - members.begin();
  auto made = create(*id, static_cast<int>(rank), static_cast<int>(members.size()), std::move(config), make_backend_);
  if (!made.ok()) return made.status().with_context(describe_meeting(rank_, excluded, members));
  return made;
}

Result<Communicator> Communicator::shrink(std::span<const int> excluded, ShrinkMode mode,
                                          const std::optional<Options>& options) {
  TUTTI_TRY(state_->check_process());
  TUTTI_ASSIGN(config::Config config, state_->config_for(options));
  TUTTI_ASSIGN(std::shared_ptr<State> state, state_->shrink(excluded, mode, std::move(config)));
  return Communicator(std::move(state));
}

}  // namespace tutti
