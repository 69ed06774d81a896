// SPDX-License-Identifier: Apache-2.0
#include "backend/host/verdicts.h"

#include <fmt/format.h>

#include "plugin/loader.h"

namespace tutti::backend {

Status Verdicts::explain(const Driver::Outcome& outcome, const Call& call) const {
  const uint32_t peer = outcome.job->work->fault.peer;
  switch (outcome.code) {
    case TUTTI_ABORTED:
      return owner_.failure();
    case TUTTI_TIMEOUT:
      return explain_timeout(outcome, call);
    case TUTTI_MISMATCH:
      return explain_mismatch(outcome, call);
    case TUTTI_REMOTE:
      return explain_remote(peer, call);
    default:
      return explain_failure(outcome, call);
  }
}

/// The plugin ran in this thread, so its text is here.
Status Verdicts::explain_failure(const Driver::Outcome& outcome, const Call& call) const {
  const std::string why = plugin::take_failure_text_of(outcome.job->plugin);
  return owner_.fail_everywhere(Status(static_cast<Code>(outcome.code),
                                       fmt::format("{} failed in the protocol, with rank {}{}{}", describe(call),
                                                   outcome.job->work->fault.peer, why.empty() ? "" : ": ", why)));
}

/// A peer whose memory is gone has most likely died: the hub's report says more.
Status Verdicts::explain_remote(uint32_t peer, const Call& call) const {
  if (const Status told = owner_.told_failure(); !told.ok()) return told;
  return owner_.fail_everywhere(
      Status(Code::kRemote, fmt::format("{}: cannot read the memory of rank {}; did it end, or free its "
                                        "buffer? shm.single_copy off avoids reading it",
                                        describe(call), peer)));
}

/// The digests only tell that there is a difference: the ranks' histories name it.
Status Verdicts::explain_mismatch(const Driver::Outcome& outcome, const Call& call) const {
  const uint32_t peer = outcome.job->work->fault.peer;
  const auto difference = owner_.difference(outcome.job->turn);
  return owner_.fail_everywhere(Status(
      Code::kMismatch, difference.value_or(fmt::format(
                           "ranks made different calls: rank {} got a message of rank {} that does not belong to call "
                           "{} ({}), and rank {} does not tell of another call; if the calls are the same, the network "
                           "or the protocol changed the message",
                           rank_, peer, outcome.job->turn.number, describe(call), peer))));
}

/// The wait may be for data that this network does not move: the text then tells the state of its connections.
Status Verdicts::explain_timeout(const Driver::Outcome& outcome, const Call& call) const {
  const uint32_t peer = outcome.job->work->fault.peer;
  const std::string network = fabric_.describe(peer);
  return owner_.fail_everywhere(Status(
      Code::kTimeout, fmt::format("{}: no progress for {} s (timeouts.operation); rank {} waits for rank {}{}{}{}",
                                  describe(call), std::chrono::duration<double>(limit_).count(), rank_, peer,
                                  network.empty() ? "" : "; ", network, owner_.states(outcome.job->turn))));
}

}  // namespace tutti::backend
