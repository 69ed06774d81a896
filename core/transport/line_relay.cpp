// SPDX-License-Identifier: Apache-2.0
#include "transport/line_relay.h"

#include <fmt/format.h>

#include <cstring>

namespace tutti::transport {
namespace {

/// Rounds for which a `done` waits for a bundle that takes it along, if data goes both ways. A round takes up to a
/// microsecond.
constexpr uint32_t kHeldRounds = 50;

}  // namespace

LineRelay::LineRelay(const Net& net, Options options)
    : RelayTask(net, options.key, options.at, options.of),
      options_(std::move(options)),
      lines_(options_.layout, options_.to, options_.from),
      out_messages_(kRequests * message_bytes(options_.layout) / sizeof(uint64_t)),
      sends_(kRequests),
      in_messages_(out_messages_.size()),
      receives_(kRequests) {}

Status LineRelay::open_out() {
  TUTTI_ASSIGN(out_registration_,
               out_->register_memory({out_messages_.data(), out_messages_.size() * sizeof(uint64_t)}));
  return {};
}

Status LineRelay::open_in() {
  TUTTI_ASSIGN(in_registration_, in_->register_memory({in_messages_.data(), in_messages_.size() * sizeof(uint64_t)}));
  return {};
}

bool LineRelay::all_sent() const {
  return under_way_ == 0 && lines_.all_sent();
}

Result<bool> LineRelay::send() {
  TUTTI_ASSIGN(bool moved, complete_sends());
  for (uint32_t index = 0; index < lines_.slots(); ++index) {
    if (!lines_.has_lines(index)) continue;
    TUTTI_ASSIGN(const bool sent, send_lines(index));
    moved = moved || sent;
  }
  if (gpu_.done() == told_) return moved;
  // While a `done` waits, the thread does not sleep.
  if (answers_ && ++held_rounds_ <= kHeldRounds) return true;
  TUTTI_ASSIGN(const bool told, post_bundle({}));
  return moved || told;
}

/// Frees the buffers whose sends are done.
Result<bool> LineRelay::complete_sends() {
  bool moved = false;
  for (uint32_t i = 0; i < kRequests && under_way_ > 0; ++i) {
    TUTTI_ASSIGN(const bool done, finish(sends_[i]));
    if (!done) continue;
    --under_way_;
    moved = true;
  }
  out_state_.count(posted_, posted_ - under_way_);
  return moved;
}

Result<bool> LineRelay::send_lines(uint32_t index) {
  if (!has_buffer()) return false;
  const LineEnds::Run run = lines_.take(index, lines_.lines(), message(out_messages_, posted_) + sizeof(Header));
  TUTTI_ASSIGN(const bool sent, post_bundle({0, run.number, run.first, run.lines, 0}));
  if (sent) lines_.sent(run);
  return sent;
}

Result<bool> LineRelay::post_bundle(const Header& header) {
  if (!has_buffer()) return false;
  void*& request = sends_[posted_ % kRequests];
  uint8_t* const message = LineRelay::message(out_messages_, posted_);
  Header complete = header;
  complete.step = posted_;
  complete.done = gpu_.done();
  std::memcpy(message, &complete, sizeof complete);
  const uint64_t bytes = sizeof header + header.lines * LineSlot::kDataBytes;
  TUTTI_ASSIGN(request, out_->send({message, bytes, kTag, out_registration_}));
  if (request == nullptr) return false;
  ++under_way_;
  ++posted_;
  if (complete.done != told_) answers_ = false;
  if (header.lines > 0) answers_ = true;
  told_ = complete.done;
  held_rounds_ = 0;
  return true;
}

/// Messages match receives in the order posted, so only the oldest receive is tested.
Result<bool> LineRelay::receive() {
  bool moved = false;
  for (;;) {
    for (; awaited_ - expected_ < kRequests; ++awaited_) {
      void*& request = receives_[awaited_ % kRequests];
      const uint64_t bytes = message_bytes(options_.layout);
      TUTTI_ASSIGN(request, in_->recv({message(in_messages_, awaited_), bytes, kTag, in_registration_}));
      if (request == nullptr) break;
    }
    in_state_.count(awaited_, expected_);
    if (awaited_ == expected_) return moved;
    uint64_t bytes = 0;
    TUTTI_ASSIGN(const bool arrived, in_->test(receives_[expected_ % kRequests], &bytes));
    if (!arrived) return moved;
    TUTTI_TRY(deliver(message(in_messages_, expected_), bytes));
    ++expected_;
    moved = true;
  }
}

Status LineRelay::deliver(const uint8_t* message, uint64_t bytes) {
  Header header{};
  if (bytes < sizeof header) return in_->mismatch(fmt::format("a message of {} bytes", bytes));
  std::memcpy(&header, message, sizeof header);
  TUTTI_TRY(check(header, bytes));
  if (header.lines > 0) lines_.put(run_of(header), message + sizeof header);
  gpu_.hear(header.done);
  return {};
}

Status LineRelay::check(const Header& header, uint64_t bytes) const {
  const uint32_t free_from = gpu_.done();
  const bool is_whole = bytes == sizeof header + header.lines * LineSlot::kDataBytes && header.step == expected_;
  if (is_whole && (header.lines == 0 || lines_.fits(run_of(header), free_from))) return {};
  return in_->mismatch(
      fmt::format("a message of {} bytes after {}, which its sender calls {} lines of message {} from line "
                  "{}, step {}; {} slots of {} lines from message {} on are free",
                  bytes, expected_, header.lines, header.number, header.first, header.step, lines_.slots(),
                  lines_.lines(), free_from));
}

}  // namespace tutti::transport
