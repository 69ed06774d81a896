// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <fmt/format.h>
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
constexpr uint64_t kLongMessage = 48 << 10;
constexpr uint32_t kLooksToAcknowledge = 16;  // empty reads after a part of a long message
constexpr uint32_t kSilentReads = 8;          // empty reads per look at the clock

}  // namespace

Connection::Connection(std::vector<DataSocket> streams, bool sends, const Shared& shared,
                       std::optional<Partner> partner)
    : sends_(sends), shared_(shared), partner_(shared.tls == nullptr ? partner : std::nullopt) {
  for (DataSocket& socket : streams) {
    streams_.emplace_back().socket = std::make_shared<DataSocket>(std::move(socket));
  }
  name_ends();
  if (!sends_) streams_.front().ahead = std::make_unique<uint8_t[]>(kReadAhead);
  for (Request& request : requests_) request.connection = this;
  announced_.connection = this;
  if (!partner_ || partner_->context == shared_.id) return;
  const bool is_first = shared_.id < partner_->context;
  if (is_first != sends_) move_ = Move::kMay;
  offers_ = !is_first && !sends_;
  if (is_first && sends_) shared_.pairs->offer_sent(partner_->connection, sockets());
}

/// The peer's other connection may use the sockets further. The peer learns that this connection has ended.
Connection::~Connection() {
  if (partner_) shared_.pairs->forget(partner_->connection);
  for (const Stream& stream : streams_) {
    if (stream.socket->both_ways()) ::shutdown(stream.socket->fd().get(), sends_ ? SHUT_WR : SHUT_RDWR);
  }
}

void Connection::name_ends() {
  const std::string here = local_address(streams_.front().socket->fd()).to_string();
  const std::string there = remote_address(streams_.front().socket->fd()).to_string();
  ends_ = fmt::format("{} to {}", sends_ ? here : there, sends_ ? there : here);
}

Sockets Connection::sockets() const {
  Sockets all;
  for (const Stream& stream : streams_) all.push_back(stream.socket);
  return all;
}

Pairs::PairKey Connection::pair_key() const {
  const Fd& socket = streams_.front().socket->fd();
  return {partner_->context, partner_->number,
          local_address(socket).ip_text() + " " + remote_address(socket).ip_text()};
}

/// A message has come, so the other end stands, and knows the connection.
void Connection::offer() {
  offers_ = false;
  shared_.pairs->offer_received(pair_key(), partner_->connection, sockets());
}

/// The present sockets have no piece left to send or to receive. The kernel may still hold sent data.
bool Connection::all_moved() const {
  return std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) { return stream.pieces.empty(); });
}

/// On the sender: looks for a connection from the other end, and says that it moves to the sockets of that connection.
void Connection::announce() {
  const uint64_t offers = shared_.pairs->offers();
  if (offers == seen_offers_ || !all_moved()) return;
  seen_offers_ = offers;
  Pairs::Offer found = shared_.pairs->take_received(pair_key());
  if (found.sockets.empty()) return;
  move_ = Move::kAnnounced;
  next_ = std::move(found.sockets);
  announcement_ = {{0, 0, kMoves}, found.connection};
  announced_.open = 1;
  streams_.front().pieces.push_back({reinterpret_cast<uint8_t*>(&announcement_), sizeof announcement_, &announced_});
}

/// On the receiver.
Status Connection::follow(const Announcement& announcement) {
  move_ = Move::kAnnounced;
  next_ = shared_.pairs->find_sent(announcement.connection);
  if (!next_.empty()) return {};
  return {Code::kRemote, fmt::format("{}: the other end sends on over a connection that is closed", ends_)};
}

void Connection::move_to(Sockets sockets) {
  move_ = Move::kNever;
  auto ahead = std::move(streams_.front().ahead);
  left_ = std::move(streams_);
  streams_.clear();
  for (auto& socket : sockets) {
    shared_.prepare_sender(socket->fd());
    socket->use_both_ways();
    streams_.emplace_back().socket = std::move(socket);
  }
  streams_.front().ahead = std::move(ahead);
  looks_.forget_request();
  name_ends();
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

/// Puts the parts of a message on the streams' queues. A faulty peer may say that a message of few bytes is striped.
void Connection::cut(Request& request, uint8_t* data, uint64_t bytes, bool striped) {
  const uint64_t parts = striped ? streams_.size() : 1;
  const uint64_t part = part_bytes(bytes, parts);
  for (uint64_t i = 0, begin = 0; i < parts && begin < bytes; ++i) {
    const uint64_t length = i + 1 == parts ? bytes - begin : std::min(part, bytes - begin);
    streams_[i].pieces.push_back({data + begin, length, &request, bytes >= kLongMessage});
    ++request.open;
    begin += length;
  }
}

Status Connection::send(const void* data, uint64_t bytes, uint32_t tag, void* /*registration*/, sdk::Request*& out) {
  for (const Stream& stream : streams_) TUTTI_TRY(stream.ended);
  if (!sends_) return {Code::kInvalidArgument, "this connection only receives"};
  if (move_ == Move::kMay) announce();
  if (move_ == Move::kAnnounced) {
    progress();
    if (move_ == Move::kAnnounced) return {};  // the socket is full
  }
  Request* const request = take_request();
  if (request == nullptr) return {};
  request->sends = true;
  const bool striped = streams_.size() > 1 && bytes >= shared_.stripe_bytes;
  request->header = {bytes, tag, striped ? kStriped : kWhole};
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
  looks_.expect_data();  // its message may wait in the socket
  out = request;
  return {};
}

Status Connection::test(sdk::Request& tested, bool& done, uint64_t* bytes) {
  auto& request = static_cast<Request&>(tested);
  if (!request.done()) {
    if (looks_.is_due(request, shared_.arousals->load(std::memory_order_relaxed))) drive(request);
    if (!request.done()) return obstacle(request);
  }
  if (bytes != nullptr && !request.sends) std::copy_n(request.sizes.begin(), request.count, bytes);
  request.used = false;
  done = true;
  return {};
}

void Connection::drive(const Request& request) {
  const uint64_t before = moves_;
  progress();
  looks_.note(request, moves_ != before);
}

void Connection::progress() {
  for (Stream& stream : streams_) {
    if (stream.ended.ok()) stream.ended = advance(stream);
  }
  if (move_ != Move::kAnnounced || !all_moved() || next_.empty()) return;
  move_to(std::move(next_));
  progress();
}

Status Connection::advance(Stream& stream) {
  if (!stream.socket->ready() && stream.socket->shake_hands() != 0) {
    if (errno != EAGAIN) return lost(stream, errno);
    return sends_ ? check_acknowledged(stream) : Status();
  }
  if (sends_) return write_out(stream);
  const uint64_t before = moves_;
  TUTTI_TRY(fill(stream, &stream == &streams_.front()));
  // Keep-alive of TCP does not find a silent host while the other direction of the socket has data under way.
  const bool silent = moves_ == before && stream.socket->both_ways() && ++silent_reads_ % kSilentReads == 0;
  return silent ? check_acknowledged(stream) : Status();
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
                         ends_, stream.socket->tls_failure()));
  shared_.alarm->raise(why);
  return why;
}

Status Connection::lost(const Stream& stream, int error) const {
  if (error == EBADMSG && stream.socket->has_tls()) return forged(stream);
  std::string why = reason_of(error, shared_.limit());
  if (error == ENODATA && stream.socket->has_tls()) {
    why =
        "it was cut without the end that TLS demands; the process at the other end may have ended, or a process on "
        "the path has cut it";
  }
  return {Code::kRemote, fmt::format("{}: {}", ends_, why)};
}

Status Connection::check_acknowledged(Stream& stream) const {
  const bool gone = stream.acknowledgements.have_ended(stream.socket->fd(), shared_.limit());
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
    const ssize_t sent = stream.socket->send(std::span(vectors).first(count));
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

/// Up to `bytes` bytes that are there now; 0: none.
Result<size_t> Connection::read(Stream& stream, uint8_t* to, size_t bytes) {
  TUTTI_ASSIGN(const size_t got, receive(stream, to, bytes));
  if (got == 0 && stream.unacknowledged_looks > 0 && --stream.unacknowledged_looks == 0)
    acknowledge_now(stream.socket->fd());
  return got;
}

/// As read(). If a call has emptied the socket, the next call saves the system call.
Result<size_t> Connection::receive(Stream& stream, uint8_t* to, size_t bytes) {
  if (std::exchange(stream.drained, false)) return size_t{0};
  for (;;) {
    const ssize_t got = stream.socket->recv(to, bytes, stream.drained);
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
      if (!first || move_ == Move::kAnnounced) return {};
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
    if (piece.is_long) stream.unacknowledged_looks = kLooksToAcknowledge;
    consume(stream, got);
  }
}

/// Reads on until `bytes` bytes are there. False: not yet.
Result<bool> Connection::read_ahead(Stream& stream, size_t bytes) {
  if (stream.ahead_end - stream.ahead_begin >= bytes) return true;
  std::memmove(stream.ahead.get(), stream.ahead.get() + stream.ahead_begin, stream.ahead_end - stream.ahead_begin);
  stream.ahead_end -= std::exchange(stream.ahead_begin, 0);
  TUTTI_ASSIGN(const size_t got, read(stream, stream.ahead.get() + stream.ahead_end, kReadAhead - stream.ahead_end));
  stream.ahead_end += got;
  return stream.ahead_end - stream.ahead_begin >= bytes;
}

/// Reads the next header from stream 0 and finds its receive. False: not there yet, or no receive is posted for it yet.
Result<bool> Connection::next_message() {
  if (receives_.empty()) return false;
  Stream& stream = streams_.front();
  TUTTI_ASSIGN(const bool found, read_ahead(stream, sizeof(Header)));
  if (!found) return false;
  Announcement next;
  std::memcpy(&next.header, stream.ahead.get() + stream.ahead_begin, sizeof next.header);
  if (next.header.form == kMoves && move_ == Move::kMay) {
    TUTTI_ASSIGN(const bool whole, read_ahead(stream, sizeof next));
    if (!whole) return false;
    std::memcpy(&next, stream.ahead.get() + stream.ahead_begin, sizeof next);
    stream.ahead_begin += sizeof next;
    TUTTI_TRY(follow(next));
    return false;
  }
  if (next.header.bytes > kMaxMessage || next.header.form > kStriped) {
    return Status(Code::kRemote, fmt::format("{}: received a damaged header", ends_));
  }
  if (offers_) offer();
  return match(next.header);
}

/// False: no receive is posted for the message yet.
Result<bool> Connection::match(const Header& header) {
  for (auto it = receives_.begin(); it != receives_.end(); ++it) {
    Request& request = **it;
    for (uint32_t i = 0; i < request.count; ++i) {
      if (request.taken[i] || request.tags[i] != header.tag) continue;
      streams_.front().ahead_begin += sizeof header;
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
  cut(request, request.addresses[index], header.bytes, header.form == kStriped);
  return {};
}

}  // namespace tutti::net_socket
