// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "conformance/mock.h"

namespace tutti::mock {
namespace {

// Sending.

void break_off(Connection& connection) {
  connection.is_broken = true;
}

/// Sends as much of a message as the socket takes. True if the send is complete. A send that is to be complete too
/// early moves one piece per call. Otherwise a quick receiver could take the whole message before the fault shows.
bool push(Connection& connection, Request& request) {
  const Part& part = request.parts[0];
  const uint64_t total = sizeof(Frame) + part.room;
  while (request.moved < total) {
    const bool in_frame = request.moved < sizeof(Frame);
    const uint8_t* const from = in_frame ? reinterpret_cast<const uint8_t*>(&request.frame) + request.moved
                                         : part.address + (request.moved - sizeof(Frame));
    const size_t bytes = in_frame ? sizeof(Frame) - request.moved : total - request.moved;
    const int flags = MSG_NOSIGNAL | (connection.context->has(Fault::kBlocksStopped) ? 0 : MSG_DONTWAIT);
    const ssize_t sent = ::send(connection.fd, from, std::min<size_t>(bytes, 64 * 1024), flags);
    if (sent < 0 && errno == EAGAIN) return false;
    if (sent < 0) return break_off(connection), false;
    request.moved += static_cast<uint64_t>(sent);
    if (connection.context->has(Fault::kEarlySend)) break;
  }
  return request.moved == total;
}

/// Replaces the message by a copy that the fault changes.
void change(Connection& connection, Request& request) {
  Part& part = request.parts[0];
  const Context& context = *connection.context;
  request.copy.assign(part.address, part.address + part.room);
  if (context.has(Fault::kCorrupted)) request.copy[part.room / 2] ^= 4;
  if (context.has(Fault::kTruncated)) std::fill(request.copy.end() - 8, request.copy.end(), uint8_t{0});
  part.address = request.copy.data();
}

}  // namespace

void push_all(Connection& connection) {
  while (!connection.is_broken && !connection.sends.empty() && push(connection, *connection.sends.front())) {
    connection.sends.front()->is_done = true;
    connection.sends.pop_front();
  }
}

/// Queues a send, with the faults that concern whole messages.
void queue(Connection& connection, Request* request) {
  const Context& context = *connection.context;
  const size_t number = connection.messages++;
  const uint64_t bytes = request->parts[0].room;
  const bool is_changed = (context.has(Fault::kCorrupted) && number == 9 && bytes > 0) ||
                          (context.has(Fault::kTruncated) && bytes >= 1 << 20);
  if (is_changed) change(connection, *request);
  const bool is_lost = (context.has(Fault::kLost) && number == 11) || (context.has(Fault::kLosesEmpty) && bytes == 0);
  if (is_lost && number >= kEarliest - 1) {
    request->is_done = true;
    return;
  }
  if (context.has(Fault::kSwapped) && number == kSwappedMessage) {
    connection.held = request;
    return;
  }
  connection.sends.push_back(request);
  if (connection.held != nullptr) connection.sends.push_back(std::exchange(connection.held, nullptr));
  if (context.has(Fault::kDoubled) && number == 12) {
    auto* const again = new Request(*request);  // the connection frees it
    connection.all.insert(again);
    connection.sends.push_back(again);
  }
}

// Receiving.

namespace {

/// The oldest part that a message matches; null: it waits.
Part* match(Connection& connection, uint32_t tag, Request*& owner) {
  for (Request* request : connection.receives) {
    for (Part& part : request->parts) {
      if (part.taken || (part.tag != tag && !connection.context->has(Fault::kIgnoresTags))) continue;
      owner = request;
      return &part;
    }
  }
  return nullptr;
}

/// Up to `bytes` bytes; 0: none are there, or the connection has ended.
uint64_t pull(Connection& connection, uint8_t* to, uint64_t bytes) {
  const ssize_t got = ::recv(connection.fd, to, bytes, MSG_DONTWAIT);
  if (got > 0) return static_cast<uint64_t>(got);
  if (got == 0 && bytes > 0) connection.end_seen = true;
  if (got < 0 && errno != EAGAIN && errno != EINTR) connection.end_seen = true;
  return 0;
}

void end_message(Connection& connection) {
  Part& part = *connection.into;
  part.got = connection.frame.bytes;
  part.full = true;
  if (connection.context->has(Fault::kWritesBeyond) && part.got > 32) part.address[part.got] = 0;
  Request& request = *connection.into_request;
  if (std::all_of(request.parts.begin(), request.parts.end(), [](const Part& one) { return one.full; })) {
    request.is_done = true;
    std::erase(connection.receives, &request);
  }
  connection.into = nullptr;
  connection.frame_bytes = 0;
  connection.arrived = 0;
}

/// One piece of the stream. False: nothing moved.
bool pull_piece(Connection& connection) {
  if (connection.frame_bytes < sizeof(Frame)) {
    if (connection.receives.empty() && connection.frame_bytes == 0) return false;
    auto* const frame = reinterpret_cast<uint8_t*>(&connection.frame);
    const uint64_t got = pull(connection, frame + connection.frame_bytes, sizeof(Frame) - connection.frame_bytes);
    connection.frame_bytes += got;
    return got > 0;
  }
  if (connection.into == nullptr) {
    connection.into = match(connection, connection.frame.tag, connection.into_request);
    if (connection.into == nullptr) return false;
    connection.into->taken = true;
    connection.into_request->too_long = connection.frame.bytes > connection.into->room;
  }
  if (connection.into_request->too_long && !connection.context->has(Fault::kIgnoresRoom)) return false;
  const uint64_t bytes = std::min(connection.frame.bytes, connection.into->room);
  if (connection.arrived == bytes) {
    end_message(connection);
    return true;
  }
  const uint64_t got = pull(connection, connection.into->address + connection.arrived,
                            std::min<uint64_t>(bytes - connection.arrived, 64 * 1024));
  connection.arrived += got;
  return got > 0;
}

void pull_all(Connection& connection) {
  if (connection.context->has(Fault::kEndBeforeData)) {
    pollfd ready{connection.fd, POLLRDHUP, 0};
    if (poll(&ready, 1, 0) > 0) return connection.is_broken = true, void();
  }
  for (int pieces = 0; pieces < 16 && pull_piece(connection); ++pieces) {
  }
  if (connection.end_seen) connection.is_broken = true;
}

}  // namespace

void progress(Connection& connection) {
  if (connection.is_broken) return;
  push_all(connection);
  pull_all(connection);
}

}  // namespace tutti::mock
