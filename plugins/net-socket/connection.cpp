// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tutti::net_socket {
namespace {

constexpr size_t kMaxVectors = 16;
constexpr uint64_t kMaxMessage = uint64_t{1} << 40;

}  // namespace

Connection::Connection(std::vector<base::Fd> streams, const Options& options) : options_(options) {
  for (base::Fd& socket : streams) {
    Stream& stream = streams_.emplace_back();
    stream.socket = std::move(socket);
  }
  if (!options_.sends) streams_.front().ahead = std::make_unique<uint8_t[]>(kReadAhead);
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

Result<Request*> Connection::send(const uint8_t* data, uint64_t bytes, uint32_t tag) {
  for (const Stream& stream : streams_) TUTTI_TRY(stream.ended);
  if (!options_.sends) return Status(Code::kInvalidArgument, "this connection only receives");
  Request* request = take_request();
  if (request == nullptr) return request;
  request->sends = true;
  const bool striped = streams_.size() > 1 && bytes >= options_.stripe_bytes;
  request->header = {bytes, tag, striped ? 1u : 0u};
  request->count = request->matched = 1;
  streams_.front().pieces.push_back({reinterpret_cast<uint8_t*>(&request->header), sizeof(Header), request});
  ++request->open;
  cut(*request, const_cast<uint8_t*>(data), bytes, striped);
  progress();
  return request;
}

Result<Request*> Connection::recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags) {
  if (options_.sends) return Status(Code::kInvalidArgument, "this connection only sends");
  if (count == 0 || count > Request::kMaxGroup) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a receive of {} messages; 1 to {} may be grouped", count, Request::kMaxGroup));
  }
  Request* request = take_request();
  if (request == nullptr) return request;
  request->sends = false;
  request->count = count;
  for (uint32_t i = 0; i < count; ++i) {
    request->addresses[i] = static_cast<uint8_t*>(addresses[i]);
    request->sizes[i] = bytes[i];
    request->tags[i] = tags[i];
  }
  receives_.push_back(request);
  return request;
}

Result<bool> Connection::test(Request* request, uint64_t* bytes) {
  if (!request->done()) {
    progress();
    if (!request->done()) {
      TUTTI_TRY(obstacle(*request));
      return false;
    }
  }
  if (bytes != nullptr && !request->sends) std::copy_n(request->sizes.begin(), request->count, bytes);
  request->used = false;
  return true;
}

void Connection::progress() {
  for (Stream& stream : streams_) {
    if (!stream.ended.ok()) continue;
    stream.ended = options_.sends ? flush(stream) : fill(stream, &stream == &streams_.front());
  }
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

Status Connection::lost(std::string_view doing, int error) const {
  return {Code::kRemote, fmt::format("{} {}: {}; the process there may have ended", doing, options_.peer,
                                     error == 0 ? "it closed the connection" : base::errno_text(error))};
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

Status Connection::flush(Stream& stream) {
  while (!stream.pieces.empty()) {
    std::array<iovec, kMaxVectors> vectors{};
    const size_t count = std::min(kMaxVectors, stream.pieces.size());
    for (size_t i = 0; i < count; ++i) vectors[i] = {stream.pieces[i].data, stream.pieces[i].bytes};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(stream.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      if (errno == EINTR) continue;
      return lost("send to", errno);
    }
    consume(stream, static_cast<size_t>(sent));
  }
  return {};
}

/// Up to `bytes` bytes that are there now; 0: none.
Result<size_t> Connection::read(Stream& stream, uint8_t* to, size_t bytes) {
  for (;;) {
    const ssize_t got = ::recv(stream.socket.get(), to, bytes, MSG_DONTWAIT);
    if (got > 0) return static_cast<size_t>(got);
    if (got == 0) return lost("receive from", 0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return lost("receive from", errno);
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

/// Reads the next header from stream 0 and finds its receive. False: not there yet, or nobody wants it yet.
Result<bool> Connection::next_message() {
  if (receives_.empty()) return false;
  Stream& stream = streams_.front();
  if (stream.ahead_end - stream.ahead_begin < sizeof(Header)) {
    std::memmove(stream.ahead.get(), stream.ahead.get() + stream.ahead_begin, stream.ahead_end - stream.ahead_begin);
    stream.ahead_end -= std::exchange(stream.ahead_begin, 0);
    TUTTI_ASSIGN(const size_t got, read(stream, stream.ahead.get() + stream.ahead_end, kReadAhead - stream.ahead_end));
    stream.ahead_end += got;
    if (stream.ahead_end - stream.ahead_begin < sizeof(Header)) return false;
  }
  Header header;
  std::memcpy(&header, stream.ahead.get() + stream.ahead_begin, sizeof header);
  if (header.bytes > kMaxMessage || header.striped > 1) {
    return Status(Code::kRemote, fmt::format("received a damaged header from {}", options_.peer));
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
            fmt::format("a message of {} bytes from {} is longer than the {} bytes of its receive (tag {})",
                        header.bytes, options_.peer, request.sizes[index], header.tag)};
  }
  request.taken[index] = true;
  ++request.matched;
  request.sizes[index] = header.bytes;
  cut(request, request.addresses[index], header.bytes, header.striped != 0);
  return {};
}

}  // namespace tutti::net_socket
