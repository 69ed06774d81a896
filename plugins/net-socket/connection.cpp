// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::net_socket {
namespace {

constexpr size_t kMaxVectors = 16;
constexpr uint64_t kMaxMessage = uint64_t{1} << 40;
constexpr Milliseconds kCheckInterval{250};
constexpr uint32_t kMaxSkips = 128;    // a round of tests over all requests is shorter
constexpr uint64_t kEagerLooks = 128;  // in a row, before a connection counts as idle
constexpr uint64_t kIdleLooks = 16;    // an idle connection looks once in so many calls

}  // namespace

Connection::Connection(std::vector<DataSocket> streams, bool sends, const Shared& shared)
    : sends_(sends), shared_(shared) {
  const std::string here = local_address(streams.front().fd()).to_string();
  const std::string there = remote_address(streams.front().fd()).to_string();
  ends_ = fmt::format("{} to {}", sends ? here : there, sends ? there : here);
  for (DataSocket& socket : streams) {
    Stream& stream = streams_.emplace_back();
    stream.socket = std::move(socket);
  }
  if (!sends_) streams_.front().ahead = std::make_unique<uint8_t[]>(kReadAhead);
  for (Request& request : requests_) request.connection = this;
}

Request* Connection::take_request() {
  for (Request& request : requests_) {
    if (request.used) continue;
    request.used = true;
    request.count = request.matched = request.open = 0;
    request.taken.fill(false);
    return &request;
  }
  return nullptr;
}

/// Puts the parts of a message on the streams' queues. A whole number of lines each, so that parts start aligned.
void Connection::cut(Request& request, uint8_t* data, uint64_t bytes, bool striped) {
  const uint64_t parts = striped ? streams_.size() : 1;
  const uint64_t part = (bytes / parts + 63) / 64 * 64;
  for (uint64_t i = 0, begin = 0; i < parts && begin < bytes; ++i) {
    const uint64_t length = i + 1 == parts ? bytes - begin : std::min(part, bytes - begin);
    streams_[i].pieces.push_back({data + begin, length, &request});
    ++request.open;
    begin += length;
  }
}

Status Connection::send(const void* data, uint64_t bytes, uint32_t tag, void* /*registration*/, sdk::Request*& out) {
  for (const Stream& stream : streams_) TUTTI_TRY(stream.ended);
  if (!sends_) return {Code::kInvalidArgument, "this connection only receives"};
  Request* const request = take_request();
  if (request == nullptr) return {};
  request->sends = true;
  const bool striped = streams_.size() > 1 && bytes >= shared_.stripe_bytes;
  request->header = {bytes, tag, striped ? 1u : 0u};
  request->count = request->matched = 1;
  streams_.front().pieces.push_back({reinterpret_cast<uint8_t*>(&request->header), sizeof(Header), request});
  ++request->open;
  cut(*request, static_cast<uint8_t*>(const_cast<void*>(data)), bytes, striped);
  progress();
  out = request;
  return {};
}

Status Connection::recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                        void* const* /*registrations*/, sdk::Request*& out) {
  if (sends_) return {Code::kInvalidArgument, "this connection only sends"};
  if (count == 0 || count > Request::kMaxGroup) {
    return {Code::kInvalidArgument,
            fmt::format("a receive of {} messages; 1 to {} may be grouped", count, Request::kMaxGroup)};
  }
  Request* const request = take_request();
  if (request == nullptr) return {};
  request->sends = false;
  request->count = count;
  for (uint32_t i = 0; i < count; ++i) {
    request->addresses[i] = static_cast<uint8_t*>(addresses[i]);
    request->sizes[i] = bytes[i];
    request->tags[i] = tags[i];
  }
  receives_.push_back(request);
  idle_ = nullptr;  // its message may wait in the socket
  out = request;
  return {};
}

Status Connection::test(sdk::Request& tested, bool& done, uint64_t* bytes) {
  auto& request = static_cast<Request&>(tested);
  if (!request.done()) {
    if (!skips(request)) drive(request);
    if (!request.done()) return obstacle(request);
  }
  if (bytes != nullptr && !request.sends) std::copy_n(request.sizes.begin(), request.count, bytes);
  request.used = false;
  done = true;
  return {};
}

/// The core tests many requests in turn. If one test has just found nothing to move, tests of other requests spare the
/// system calls until that request is tested again.
bool Connection::skips(const Request& request) {
  if (idle_ == nullptr || idle_ == &request) return false;
  return seen_arousals_ == shared_.arousals->load(std::memory_order_relaxed) && ++skips_ < kMaxSkips;
}

void Connection::drive(const Request& request) {
  const uint64_t before = moves_;
  progress();
  idle_ = moves_ == before ? &request : nullptr;
  skips_ = 0;
}

void Connection::progress() {
  for (Stream& stream : streams_) {
    if (stream.ended.ok()) stream.ended = advance(stream);
  }
}

Status Connection::advance(Stream& stream) {
  if (!stream.socket.ready() && stream.socket.shake_hands() != 0) {
    if (errno != EAGAIN) return lost(stream, errno);
    return sends_ ? check_acknowledged(stream) : Status();
  }
  return sends_ ? write_out(stream) : fill(stream, &stream == &streams_.front());
}

/// Why the request can never be done; ok if it can.
Status Connection::obstacle(const Request& request) const {
  if (request.matched < request.count) TUTTI_TRY(streams_.front().ended);
  for (const Stream& stream : streams_) {
    if (stream.ended.ok()) continue;
    for (const Piece& piece : stream.pieces) {
      if (piece.request == &request) return stream.ended;
    }
  }
  return {};
}

/// The bytes that came are not the bytes that the other end sent. Guests of the host are dropped without a word, so the
/// listener says it, too.
Status Connection::forged(const Stream& stream) const {
  Status why(Code::kMismatch,
             fmt::format("{}: TLS refuses what arrived ({}): a process on the path has changed it, or a device has "
                         "damaged it; check the machines and links between both ends",
                         ends_, stream.socket.tls_failure()));
  shared_.alarm->raise(why);
  return why;
}

Status Connection::lost(const Stream& stream, int error) const {
  if (error == EBADMSG && stream.socket.has_tls()) return forged(stream);
  std::string why = errno_text(error);
  if (error == 0) {
    why = "the process at the other end closed it";
  } else if (error == ENODATA && stream.socket.has_tls()) {
    why =
        "it was cut without the end that TLS demands; the process at the other end may have ended, or a process on "
        "the path has cut it";
  } else if (error == ECONNRESET || error == EPIPE) {
    why += "; the process at the other end may have ended";
  } else {
    why = fmt::format(
        "no sign of the other host for {} s ({}); check the link, or raise timeouts.peer_loss if it may be "
        "down for longer",
        static_cast<double>(shared_.limit().count()) / 1000, why);
  }
  return {Code::kRemote, fmt::format("{}: {}", ends_, why)};
}

/// The other host acknowledges data that its process has not read yet, also while that process is stopped. As long as
/// its buffers are full it answers to each attempt of TCP, and the time between two attempts grows.
Status Connection::check_acknowledged(Stream& stream) const {
  const Time now = Clock::now();
  if (now < stream.next_check) return {};
  stream.next_check = now + kCheckInterval;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (getsockopt(stream.socket.fd().get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return {};
  if (info.tcpi_unacked == 0 || info.tcpi_bytes_acked != stream.acknowledged) {
    stream.acknowledged = info.tcpi_bytes_acked;
    stream.acknowledged_since = now;
    return {};
  }
  const Milliseconds silence(info.tcpi_last_ack_recv);
  const Milliseconds between_attempts(info.tcpi_rto / 1000);
  const bool gone = now - stream.acknowledged_since > shared_.limit() && silence > shared_.limit() &&
                    2 * silence > 3 * between_attempts;
  return gone ? lost(stream, ETIMEDOUT) : Status();
}

void Connection::consume(Stream& stream, size_t bytes) {
  while (bytes > 0) {
    Piece& piece = stream.pieces.front();
    const uint64_t part = std::min<uint64_t>(bytes, piece.bytes);
    piece.data += part;
    piece.bytes -= part;
    bytes -= part;
    if (piece.bytes > 0) return;
    --piece.request->open;
    stream.pieces.pop_front();
  }
}

Status Connection::write_out(Stream& stream) {
  while (!stream.pieces.empty()) {
    std::array<iovec, kMaxVectors> vectors{};
    const size_t count = std::min(kMaxVectors, stream.pieces.size());
    for (size_t i = 0; i < count; ++i) vectors[i] = {stream.pieces[i].data, stream.pieces[i].bytes};
    const ssize_t sent = stream.socket.send(std::span(vectors).first(count));
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return check_acknowledged(stream);
      if (errno == EINTR) continue;
      return lost(stream, errno);
    }
    ++moves_;
    consume(stream, static_cast<size_t>(sent));
  }
  return {};
}

/// Up to `bytes` bytes that are there now; 0: none. If a read has emptied the socket, the next read saves the system
/// call.
Result<size_t> Connection::read(Stream& stream, uint8_t* to, size_t bytes) {
  if (std::exchange(stream.drained, false)) return size_t{0};
  for (;;) {
    const ssize_t got = stream.socket.recv(to, bytes, stream.drained);
    if (got > 0) {
      ++moves_;
      return static_cast<size_t>(got);
    }
    if (got == 0) return lost(stream, 0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return lost(stream, errno);
  }
}

Status Connection::fill(Stream& stream, bool first) {
  for (;;) {
    if (stream.pieces.empty()) {
      if (!first) return {};
      TUTTI_ASSIGN(const bool found, next_message());
      if (!found) return {};
      continue;
    }
    Piece& piece = stream.pieces.front();
    const size_t ready = stream.ahead_end - stream.ahead_begin;
    if (ready > 0) {
      const size_t part = std::min<size_t>(ready, piece.bytes);
      std::memcpy(piece.data, stream.ahead.get() + stream.ahead_begin, part);
      stream.ahead_begin += part;
      consume(stream, part);
      continue;
    }
    TUTTI_ASSIGN(const size_t got, read(stream, piece.data, piece.bytes));
    if (got == 0) return {};
    consume(stream, got);
  }
}

/// A look for a message costs a system call. A rank that polls all of its connections looks seldom at idle connections,
/// so that they do not slow busy connections. Before a thread sleeps, it asks for events; each event makes all
/// connections look at once.
bool Connection::is_worth_a_look() {
  const uint64_t arousals = shared_.arousals->load(std::memory_order_relaxed);
  if (std::exchange(seen_arousals_, arousals) != arousals) empty_looks_ = 0;
  ++empty_looks_;
  return empty_looks_ <= kEagerLooks || empty_looks_ % kIdleLooks == 0;
}

/// Reads the next header from stream 0 and finds its receive. False: not there yet, or no receive is posted for it yet.
Result<bool> Connection::next_message() {
  if (receives_.empty()) return false;
  Stream& stream = streams_.front();
  if (stream.ahead_end - stream.ahead_begin < sizeof(Header)) {
    if (!is_worth_a_look()) return false;
    std::memmove(stream.ahead.get(), stream.ahead.get() + stream.ahead_begin, stream.ahead_end - stream.ahead_begin);
    stream.ahead_end -= std::exchange(stream.ahead_begin, 0);
    TUTTI_ASSIGN(const size_t got, read(stream, stream.ahead.get() + stream.ahead_end, kReadAhead - stream.ahead_end));
    stream.ahead_end += got;
    if (got > 0) empty_looks_ = 0;
    if (stream.ahead_end - stream.ahead_begin < sizeof(Header)) return false;
  }
  Header header;
  std::memcpy(&header, stream.ahead.get() + stream.ahead_begin, sizeof header);
  if (header.bytes > kMaxMessage || header.striped > 1) {
    return Status(Code::kRemote, fmt::format("{}: received a damaged header", ends_));
  }
  for (auto it = receives_.begin(); it != receives_.end(); ++it) {
    Request& request = **it;
    for (uint32_t i = 0; i < request.count; ++i) {
      if (request.taken[i] || request.tags[i] != header.tag) continue;
      stream.ahead_begin += sizeof header;
      TUTTI_TRY(accept(header, request, i));
      if (request.matched == request.count) receives_.erase(it);
      return true;
    }
  }
  return false;
}

Status Connection::accept(const Header& header, Request& request, uint32_t index) {
  if (header.bytes > request.sizes[index]) {
    return {Code::kMismatch,
            fmt::format("a message of {} bytes ({}) is longer than the {} bytes of its receive (tag {})", header.bytes,
                        ends_, request.sizes[index], header.tag)};
  }
  request.taken[index] = true;
  ++request.matched;
  request.sizes[index] = header.bytes;
  cut(request, request.addresses[index], header.bytes, header.striped != 0);
  return {};
}

}  // namespace tutti::net_socket
