// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/stream_order.h"

namespace tutti::backend {

Status StreamOrder::join(Stream waiting, Stream first) {
  TUTTI_TRY(streams_->record(Mark::kJoint, first));
  return streams_->wait(waiting, Mark::kJoint);
}

Status StreamOrder::begin(Stream stream) {
  TUTTI_ASSIGN(capturing_, streams_->capture(stream));
  current_ = place_of(stream);
  if (capturing_) return follow_capture();
  if (!latest_ || *latest_ == current_) [[likely]]
    return {};
  return streams_->wait(stream, Mark::kDone);
}

Status StreamOrder::follow_capture() {
  if (capturing_ != capture_ || captured_ == current_) return {};
  if (captured_.thread == 0 || captured_.thread == current_.thread) return join(current_.stream, captured_.stream);
  return {Code::kInvalidArgument,
          "a capture holds a call on cudaStreamPerThread of a different thread; name a stream of the application"};
}

Status StreamOrder::end() {
  if (capturing_) {
    capture_ = capturing_;
    captured_ = current_;
    return {};
  }
  latest_ = current_;
  return streams_->record(Mark::kDone, current_.stream);
}

Status StreamOrder::gather(std::span<const Stream> streams) {
  Stream one = streams.front();
  if (streams.size() < 2) {
    const bool follows = !capture_ || captured_ == place_of(one);
    return follows ? Status() : begin(one);
  }
  TUTTI_ASSIGN(const auto wanted, streams_->capture(streams.front()));
  for (Stream other : streams.subspan(1)) {
    TUTTI_ASSIGN(const auto capture, streams_->capture(other));
    if (capture == wanted) continue;
    return {Code::kInvalidArgument,
            "the streams of a communicator's calls in one group are not all in the same capture, or all in none"};
  }
  for (Stream other : streams.subspan(1)) TUTTI_TRY(join(streams.front(), other));
  return begin(streams.front());
}

Status StreamOrder::release(std::span<const Stream> streams) {
  TUTTI_TRY(streams_->record(Mark::kJoint, streams.front()));
  for (Stream other : streams.subspan(1)) TUTTI_TRY(streams_->wait(other, Mark::kJoint));
  return {};
}

Status StreamOrder::finish() {
  if (capture_) return streams_->finish_all();
  return latest_ ? streams_->finish(Mark::kDone) : Status();
}

}  // namespace tutti::backend
