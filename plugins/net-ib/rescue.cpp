// SPDX-License-Identifier: Apache-2.0
// The part of a link that gives up a rail (link.h states the order).
#include <fmt/format.h>

#include <cstddef>

#include "link.h"
#include "tutti/plugin/types.h"

namespace tutti::net_ib {
namespace {

std::string name_of(const Rail& rail) {
  return fmt::format("{} to {}", rail.port().name, rail.peer().device.data());
}

}  // namespace

void Link::lose(uint32_t index, const Status& why) {
  Rail& rail = *rails_[index];
  if (rail.state() != Rail::State::kLive) return;
  if (rails_.size() == 1) return fail(why);
  rail.close(why);
  ++closing_;
  unsettled_ = true;
  renew_queue_pairs();
  if (queue_pairs_.empty()) return fail(all_lost());
  shared_.host.log(TUTTI_LOG_WARN, fmt::format("{} has lost the rail from {}: {}; its data goes on over {} of {} rails",
                                               ends_, name_of(rail), why.text(), live_rails(), rails_.size()));
}

/// Each rail with its reason, and the code of the rail that was lost last.
Status Link::all_lost() const {
  std::string text = "all rails are lost";
  Code code = Code::kRemote;
  for (const auto& rail : rails_) {
    text += fmt::format("; {}: {}", name_of(*rail), rail->why().text());
    code = rail->why().code();
  }
  return {code, text};
}

Status Link::take_control(uint32_t carrier, uint32_t immediate) {
  if (immediate == Immediate::kProbe) return {};
  const uint32_t index = Immediate::rail(immediate);
  if (index >= rails_.size() || index == carrier)
    return {Code::kMismatch, fmt::format("a report about rail {}; are both plugins of one version?", index)};
  Rail& rail = *rails_[index];
  if (rail.heard) return {};  // sent again, because its acknowledgement was lost
  rail.heard = true;
  rail.heard_from = carrier;
  unsettled_ = true;
  lose(index, Status(Code::kRemote, fmt::format("{} at the other end has given it up; see the log of that rank",
                                                rail.peer().device.data())));
  return {};
}

/// Moves every rail that is given up as far as it goes now.
Status Link::settle() {
  unsettled_ = false;
  for (uint32_t i = 0; i < rails_.size(); ++i) {
    Rail& rail = *rails_[i];
    if (rail.state() == Rail::State::kLive) continue;
    TUTTI_TRY(rail.drain(shared_.settings.peer_loss));
    if (rail.state() == Rail::State::kClosing) {
      unsettled_ = true;
      continue;
    }
    if (!rail.told) TUTTI_TRY(tell(i));
    unsettled_ = unsettled_ || !rail.told;
    if (rail.state() == Rail::State::kLost || !rail.heard) continue;
    rail.set_lost();
    --closing_;
    TUTTI_TRY(user_->resume(i, mailbox_->reports[i][rail.heard_from]));
  }
  return {};
}

Status Link::tell(uint32_t index) {
  if (queue_pairs_.empty() || !rails_[queue_pairs_.front().rail]->has_room(queue_pairs_.front().index, true)) return {};
  Rail& rail = *rails_[index];
  const QueuePairRef queue_pair = queue_pairs_.front();
  Report& report = mailbox_->own_reports[index];
  user_->report(report);
  rail.told = true;
  rail.told_by = queue_pair.rail;
  const uint64_t from = offsetof(RdmaMailbox, own_reports) + index * sizeof report;
  const uint64_t to = offsetof(RdmaMailbox, reports) + (index * kMaxRails + queue_pair.rail) * sizeof report;
  return write_mailbox(queue_pair, Work::kControl, index, from, sizeof report, to, Immediate::kControl | index);
}

}  // namespace tutti::net_ib
