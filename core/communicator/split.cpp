// SPDX-License-Identifier: Apache-2.0
// New communicators from the ranks of an existing one.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "communicator/own_interface.h"
#include "communicator/state.h"

namespace tutti {

Result<std::shared_ptr<Communicator::State>> Communicator::State::split(int color, int key, config::Config config) {
  struct Wish {
    int color;
    int key;
  };
  const Wish mine{color, key};
  TUTTI_ASSIGN(const auto all, exchange(std::as_bytes(std::span(&mine, 1))));
  std::vector<std::pair<int, int>> group;  // key, rank
  for (size_t r = 0; r < all.size(); ++r) {
    Wish wish{};
    std::memcpy(&wish, all[r].data(), std::min(all[r].size(), sizeof wish));
    if (wish.color == color) group.emplace_back(wish.key, static_cast<int>(r));
  }
  std::stable_sort(group.begin(), group.end());
  const auto offer = communicator::offer_id(config_, color >= 0 && group.front().second == rank_);
  TUTTI_ASSIGN(const auto ids, exchange(offer.told()));
  TUTTI_TRY(offer.made);
  if (color < 0) return std::shared_ptr<State>();
  const int first = group.front().second;
  TUTTI_ASSIGN(const UniqueId id, communicator::read_id(ids[static_cast<size_t>(first)], first));
  const auto place = std::find_if(group.begin(), group.end(), [&](const auto& entry) { return entry.second == rank_; });
  return create(id, static_cast<int>(place - group.begin()), static_cast<int>(group.size()), std::move(config),
                make_backend_);
}

Result<std::optional<Communicator>> Communicator::split(int color, int key, const std::optional<Options>& options) {
  TUTTI_TRY(state_->check_process());
  TUTTI_ASSIGN(config::Config config, state_->config_for(options));
  TUTTI_ASSIGN(std::shared_ptr<State> state, state_->split(color, key, std::move(config)));
  if (state == nullptr) return std::optional<Communicator>();
  return std::optional<Communicator>(Communicator(std::move(state)));
}

}  // namespace tutti
