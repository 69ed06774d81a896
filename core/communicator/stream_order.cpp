// SPDX-License-Identifier: Apache-2.0
#include "communicator/stream_order.h"

namespace tutti::communicator {

Status StreamOrder::join(Stream waiting, Stream first) {
  TUTTI_TRY(streams_->record(Mark::kJoint, first));
  return streams_->wait(waiting, Mark::kJoint);
}

/// The stream may be gone by now, with work left: then all work of the GPU has to end.
Status StreamOrder::mark_latest() {
  const auto capture = streams_->capture(*latest_);
  if (!capture.ok()) return streams_->finish_all();
  if (capture->has_value()) {
    return {Code::kFailedPrecondition,
            "the communicator's latest call outside of captures was on a stream that is being captured now, so nothing "
            "on another stream can come after it; end the capture first, or make both calls on one stream"};
  }
  return streams_->record(Mark::kDone, *latest_).ok() ? Status() : streams_->finish_all();
}

Status StreamOrder::begin(Stream stream) {
  TUTTI_ASSIGN(capturing_, streams_->capture(stream));
  current_ = stream;
  if (capturing_) {
    return capturing_ == capture_ && captured_ != stream ? join(stream, captured_) : Status();
  }
  if (!latest_ || *latest_ == stream) [[likely]]
    return {};
  if (!several_) TUTTI_TRY(mark_latest());
  several_ = true;
  return streams_->wait(stream, Mark::kDone);
}

Status StreamOrder::end() {
  if (capturing_) {
    capture_ = capturing_;
    captured_ = current_;
    return {};
  }
  latest_ = current_;
  return several_ ? streams_->record(Mark::kDone, current_) : Status();
}

Status StreamOrder::gather(std::span<const Stream> streams) {
  const Stream one = streams.front();
  if (streams.size() < 2) {
    const bool follows = latest_ == one && (!capture_ || captured_ == one);
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
  if (capture_) return streams_->finish_all();  // graphs may run, on whatever stream
  if (!latest_) return {};
  if (several_) return streams_->finish(Mark::kDone);
  TUTTI_TRY(mark_latest());
  return streams_->finish(Mark::kDone);
}

}  // namespace tutti::communicator
