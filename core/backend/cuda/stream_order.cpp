// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/stream_order.h"

namespace tutti::backend {

Status StreamOrder::join(Stream waiting, Stream first) {
  TUTTI_TRY(streams_->record(Mark::kJoint, first));
  return streams_->wait(waiting, Mark::kJoint);
}

Status StreamOrder::begin(Stream stream) {
  TUTTI_ASSIGN(capturing_, streams_->capture(stream));
  current_ = stream;
  if (capturing_) {
    return capturing_ == capture_ && captured_ != stream ? join(stream, captured_) : Status();
  }
  if (!latest_ || *latest_ == stream) [[likely]]
    return {};
  return streams_->wait(stream, Mark::kDone);
}

Status StreamOrder::end() {
  if (capturing_) {
    const bool is_new = capture_ != capturing_;
    capture_ = capturing_;
    captured_ = current_;
    return is_new ? streams_->watch_graph(current_) : Status();
  }
  latest_ = current_;
  return streams_->record(Mark::kDone, current_);
}

Status StreamOrder::gather(std::span<const Stream> streams) {
  const Stream one = streams.front();
  if (streams.size() < 2) {
    const bool follows = !capture_ || captured_ == one;
    return follows ? Status() : begin(one);
  }
  TUTTI_ASSIGN(const auto wanted, streams_->capture(streams.front()));
  for (const Stream other : streams.subspan(1)) {
    TUTTI_ASSIGN(const auto capture, streams_->capture(other));
    if (capture == wanted) continue;
    return {Code::kInvalidArgument,
            "the streams of a communicator's calls in one group are not all in the same capture, or all in none"};
  }
  for (const Stream other : streams.subspan(1)) TUTTI_TRY(join(streams.front(), other));
  return begin(streams.front());
}

Status StreamOrder::release(std::span<const Stream> streams) {
  TUTTI_TRY(streams_->record(Mark::kJoint, streams.front()));
  for (const Stream other : streams.subspan(1)) TUTTI_TRY(streams_->wait(other, Mark::kJoint));
  return {};
}

Status StreamOrder::finish() {
  if (capture_ && streams_->graphs_exist()) return streams_->finish_all();  // they may run, on any stream
  return latest_ ? streams_->finish(Mark::kDone) : Status();
}

}  // namespace tutti::backend
