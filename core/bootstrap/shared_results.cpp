// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/shared_results.h"

#include <map>
#include <utility>

namespace tutti::bootstrap {
namespace {

/// By the tag of the secret. Never destroyed: threads may outlive all statics.
std::map<Tag, std::weak_ptr<SharedResults>>& groups_here() {
  static auto& groups = *std::make_unique<std::map<Tag, std::weak_ptr<SharedResults>>>().release();
  return groups;
}

}  // namespace

Result<std::shared_ptr<SharedResults>> SharedResults::of(const Secret& secret) {
  TUTTI_ASSIGN(const Tag tag, tag_of(secret));
  static std::mutex& mutex = base::process_mutex();
  const std::lock_guard lock(mutex);
  std::map<Tag, std::weak_ptr<SharedResults>>& groups = groups_here();
  std::erase_if(groups, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<SharedResults>& group = groups[tag];
  std::shared_ptr<SharedResults> shared = group.lock();
  if (shared == nullptr || !shared->origin_.is_here()) {
    shared = std::make_shared<SharedResults>();
    group = shared;
  }
  return shared;
}

Result<Gathered> SharedResults::get(uint32_t call, long members, Bytes sealed, const Open& open) {
  const std::lock_guard lock(mutex_);
  if (call_ == call && sealed_ == sealed) {
    if (++takers_ >= members) {
      sealed_.clear();
      return std::exchange(opened_, Gathered());
    }
    return opened_;
  }
  TUTTI_ASSIGN(Gathered opened, open(sealed));
  if (call_ != call) {
    call_ = call;
    takers_ = 1;
    sealed_ = std::move(sealed);
    opened_ = opened;
  }
  return opened;
}

}  // namespace tutti::bootstrap
