// SPDX-License-Identifier: Apache-2.0
#include "backend/ledger.h"

namespace tutti::backend {
namespace {

/// Calls `visit(call, kind, peer)` for each call that other ranks take part in.
template <class Visit>
void for_each(std::span<const Call> calls, int own_rank, Visit&& visit) {
  for (const Call& call : calls) {
    if (call.collective != Collective::kSendRecv) {
      visit(call, Turn::Kind::kCollective, 0);
    } else if (call.root != own_rank) {
      visit(call, call.receives ? Turn::Kind::kReceive : Turn::Kind::kSend, static_cast<uint32_t>(call.root));
    }
  }
}

}  // namespace

void Ledger::count(std::span<const Call> calls) {
  for_each(calls, rank, [&](const Call&, Turn::Kind kind, uint32_t peer) { attendance.count(kind, peer); });
}

void Ledger::record(std::span<const Call> calls) {
  for_each(calls, rank, [&](const Call& call, Turn::Kind kind, uint32_t peer) {
    if (kind == Turn::Kind::kCollective) {
      history.add_call(CallShape::of(call));
    } else {
      history.add_message(kind, peer, CallShape::of(call));
    }
  });
  if (calls.front().collective == Collective::kSendRecv) {
    history.enter_messages(History::Phase::kIn, CallShape::of(calls.front()));
  } else {
    history.enter(History::Phase::kIn);
  }
}

void Ledger::take_back(std::span<const Call> calls) {
  for_each(calls, rank, [&](const Call&, Turn::Kind kind, uint32_t peer) {
    attendance.uncount(kind, peer);
    kind == Turn::Kind::kCollective ? history.take_back_call() : history.take_back_message(kind, peer);
  });
  history.enter(History::Phase::kFailed);
}

}  // namespace tutti::backend
