// SPDX-License-Identifier: Apache-2.0
#include "transport/link_state.h"

#include <fmt/format.h>

#include "transport/net.h"

namespace tutti::transport {

LinkState::LinkState(const Net& net, const Key& key, bool sends) : net_(net), key_(key), sends_(sends) {
  net_.add(*this);
}

LinkState::~LinkState() {
  enter(Phase::kAbsent);
  net_.remove(*this);
}

void LinkState::enter(Phase phase) {
  const Phase before = phase_.exchange(phase, std::memory_order_relaxed);
  if (sends_ || (before == Phase::kStands) == (phase == Phase::kStands)) return;
  Incoming& incoming = *net_.options().incoming;
  phase == Phase::kStands ? incoming.add(key_.peer) : incoming.remove(key_.peer);
}

bool LinkState::owes() const {
  if (!sends_) return false;
  return phase_.load(std::memory_order_relaxed) != Phase::kStands ||
         posted_.load(std::memory_order_relaxed) > completed_.load(std::memory_order_relaxed);
}

std::string LinkState::ends() const {
  const Net* const by = by_.load(std::memory_order_relaxed);
  if (by == nullptr) return net_.ends(key_, sends_);
  Key key = key_;
  key.device = device_.load(std::memory_order_relaxed);
  key.peer_device = peer_device_.load(std::memory_order_relaxed);
  const std::string ends = by->ends(key, sends_);
  return by == &net_ ? ends : fmt::format("by network '{}' {}", by->options().name, ends);
}

std::string LinkState::describe() const {
  const std::string ends = this->ends();
  switch (phase_.load(std::memory_order_relaxed)) {
    case Phase::kAbsent:
      return ends + (sends_ ? ": not connected: connect has not ended" : ": not connected: the sender has not come");
    case Phase::kIntroduces:
      return ends + ": connected; oldest outstanding request: send of the first message, which names the sender";
    case Phase::kBroken:
      return ends + ": broken";
    case Phase::kLeft:
      return ends + ": the sender has left";
    case Phase::kStands:
      break;
  }
  const uint64_t completed = completed_.load(std::memory_order_relaxed);
  const uint64_t posted = posted_.load(std::memory_order_relaxed);
  if (posted <= completed) return fmt::format("{}: connected; no outstanding request after message {}", ends, posted);
  return fmt::format("{}: connected; oldest of {} outstanding requests: {} of message {}", ends, posted - completed,
                     sends_ ? "send" : "receive", completed + 1);
}

}  // namespace tutti::transport
