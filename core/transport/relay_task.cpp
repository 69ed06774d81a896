// SPDX-License-Identifier: Apache-2.0
#include "transport/relay_task.h"

#include "log/log.h"

namespace tutti::transport {

RelayTask::RelayTask(const Net& net, const Key& key, tutti_cuda_mailbox* at, tutti_cuda_mailbox* of)
    : gpu_(at, of),
      out_state_(net, key, true),
      in_state_(net, key, false),
      net_(net),
      key_(key),
      dial_(net.dial(key)) {}

void RelayTask::close() {
  out_.reset();
  in_.reset();
}

Status RelayTask::attach(std::unique_ptr<Channel> channel) {
  attached_.give(std::move(channel));
  return {};
}

template <class Step>
Result<bool> RelayTask::guard(Breakage& breakage, LinkState& state, bool sends, Step&& step) {
  if (!breakage.broken()) {
    Result<bool> moved = step();
    if (moved.ok() || moved.status().code() != Code::kRemote) return moved;
    breakage.begin(moved.status());
    state.enter(LinkState::Phase::kBroken);
  }
  TUTTI_TRY(breakage.verdict(net_, key_.peer, sends && !all_sent()));
  return false;
}

/// Receives first: a slot must be posted before the peer is told that it is free.
Result<bool> RelayTask::progress() {
  TUTTI_ASSIGN(const bool received, guard(in_breakage_, in_state_, false, [&] { return receive_if_connected(); }));
  TUTTI_ASSIGN(const bool sent, guard(out_breakage_, out_state_, true, [&] { return send_if_connected(); }));
  return received || sent;
}

bool RelayTask::idle() const {
  if (all_sent()) return true;
  return (out_breakage_.broken() || !net_.options().serves_left) && net_.standing(key_.peer).left;
}

Result<bool> RelayTask::send_if_connected() {
  if (out_ == nullptr) {
    TUTTI_ASSIGN(out_, dial_->advance());
    if (dial_->introduces()) out_state_.enter(LinkState::Phase::kIntroduces);
    if (out_ == nullptr) return false;
    out_state_.enter(LinkState::Phase::kStands);
    log::debug("network '{}', {}: connected", net_.options().name, net_.ends(key_, true));
    TUTTI_TRY(open_out());
  }
  return send();
}

Result<bool> RelayTask::receive_if_connected() {
  if (in_ == nullptr) {
    in_ = attached_.take();
    if (in_ == nullptr) return false;
    in_->set_ends(net_.ends(key_, false));
    in_state_.enter(LinkState::Phase::kStands);
    TUTTI_TRY(open_in());
  }
  return receive();
}

Result<bool> RelayTask::finish(void*& request) {
  if (request == nullptr) return false;
  TUTTI_ASSIGN(const bool done, out_->test(request, nullptr));
  if (done) request = nullptr;
  return done;
}

}  // namespace tutti::transport
