// SPDX-License-Identifier: Apache-2.0
#include "connecting.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tutti::net_socket {
namespace {

constexpr Milliseconds kPause{50};  // between two attempts

/// Failures that no further attempt can mend.
bool is_final(const Status& why) {
  return why.code() != Code::kRemote && why.code() != Code::kSystem;
}

}  // namespace

Result<std::unique_ptr<Connecting>> Connecting::start(const Address& address, const Shared& shared) {
  if ((address.family != AF_INET && address.family != AF_INET6) || address.streams == 0 ||
      address.streams > kMaxStreams) {
    return Status(Code::kInvalidArgument,
                  "the handle is not one of this plugin; do all ranks use the same network plugin?");
  }
  std::unique_ptr<Connecting> connecting(new Connecting(address, shared));
  connecting->to_ = SocketAddress(std::span(address.ip).first(address.family == AF_INET ? 4 : 16), address.port);
  if (const bool here = shared.tls != nullptr; here != (address.tls != 0)) {
    return Status(
        Code::kMismatch,
        fmt::format("this rank sends {}, but the rank at {} takes only data {}; set settings.net.socket.tls to "
                    "the same value on all ranks",
                    here ? "with TLS" : "without TLS", connecting->to_.to_string(), here ? "without TLS" : "with TLS"));
  }
  connecting->number_ = shared.pairs->next_number(address.context, connecting->to_.ip_text());
  return connecting;
}

Result<std::unique_ptr<sdk::Connection>> Connecting::advance() {
  if (streams_.empty() && Clock::now() < pause_until_) return std::unique_ptr<sdk::Connection>();
  const Status advanced = advance_streams();
  if (!advanced.ok()) {
    TUTTI_TRY(try_again(advanced));
    return std::unique_ptr<sdk::Connection>();
  }
  if (!std::all_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.step == Step::kDone; }))
    return std::unique_ptr<sdk::Connection>();
  std::vector<DataSocket> sockets;
  for (Stream& stream : streams_) {
    TUTTI_ASSIGN(DataSocket socket, finish(stream));
    sockets.push_back(std::move(socket));
  }
  const Partner partner{address_.context, connection_, number_};
  return std::unique_ptr<sdk::Connection>(std::make_unique<Connection>(std::move(sockets), true, shared_, partner));
}

Result<DataSocket> Connecting::finish(Stream& stream) const {
  StreamKey key;
  if (shared_.tls != nullptr) {
    TUTTI_ASSIGN(key, stream_key(address_.secret, stream.challenge.nonce, stream.hello));
  }
  return shared_.make_stream(std::move(stream.socket), TlsStream::Role::kSends, key);
}

Status Connecting::begin() {
  if (!silent_since_) silent_since_ = Clock::now();
  TUTTI_ASSIGN(connection_, sdk::make_nonce());
  for (uint32_t i = 0; i < address_.streams; ++i) {
    TUTTI_ASSIGN(Fd socket, open_stream());
    streams_.emplace_back().socket = std::move(socket);
  }
  return {};
}

Status Connecting::advance_streams() {
  if (streams_.empty()) TUTTI_TRY(begin());
  for (size_t i = 0; i < streams_.size(); ++i) TUTTI_TRY(advance_stream(i));
  // A listener whose process is stopped answers late; its host answers in its place, as long as the link is there.
  const bool waits =
      std::any_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.step == Step::kConnect; });
  if (!waits) silent_since_.reset();
  return waits && Clock::now() - *silent_since_ > shared_.limit() ? lost(ETIMEDOUT) : Status();
}

/// Ok: a further attempt follows.
Status Connecting::try_again(const Status& why) {
  streams_.clear();
  if (refused_ || is_final(why)) return why;
  const Time now = Clock::now();
  if (!silent_since_) silent_since_ = now;
  if (now - *silent_since_ > shared_.limit()) return why;
  pause_until_ = now + kPause;
  return {};
}

Result<Fd> Connecting::open_stream() {
  Fd stream(socket(to_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!stream.valid()) return system_error("cannot make a socket; check the limit of open files");
  shared_.prepare_sender(stream);
  TUTTI_TRY(shared_.watch(stream));
  if (::connect(stream.get(), to_.data(), to_.size()) != 0 && errno != EINPROGRESS) return lost(errno);
  return stream;
}

Status Connecting::advance_stream(size_t index) {
  Stream& stream = streams_[index];
  for (bool moved = true; moved;) {
    switch (stream.step) {
      case Step::kConnect: {
        TUTTI_ASSIGN(moved, connected(stream));
        break;
      }
      case Step::kChallenge: {
        TUTTI_ASSIGN(moved, read(stream, &stream.challenge, sizeof(Challenge)));
        if (moved) TUTTI_TRY(answer(stream, index));
        break;
      }
      case Step::kHello: {
        TUTTI_ASSIGN(moved, write(stream, &stream.hello, sizeof(Hello)));
        break;
      }
      case Step::kProof: {
        TUTTI_ASSIGN(moved, read(stream, &stream.proof, sizeof stream.proof));
        if (moved) TUTTI_TRY(check(stream));
        break;
      }
      case Step::kDone:
        return {};
    }
    if (!moved) break;
    stream.step = static_cast<Step>(static_cast<int>(stream.step) + 1);
    stream.moved = 0;
  }
  return {};
}

Result<bool> Connecting::connected(const Stream& stream) {
  int error = 0;
  socklen_t error_length = sizeof error;
  getsockopt(stream.socket.get(), SOL_SOCKET, SO_ERROR, &error, &error_length);
  if (error != 0) return lost(error);
  tcp_info info{};
  socklen_t length = sizeof info;
  getsockopt(stream.socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length);
  return info.tcpi_state != TCP_SYN_SENT;  // the other side may have closed by now, which reading finds out
}

Status Connecting::answer(Stream& stream, size_t index) {
  if (stream.challenge.magic != kMagic) {
    return {Code::kVersionMismatch, fmt::format("{} does not speak the protocol of this version of net-socket; do all "
                                                "ranks use the same version?",
                                                to_.to_string())};
  }
  Hello& hello = stream.hello;
  hello.connection = connection_;
  hello.stream = static_cast<uint32_t>(index);
  hello.streams = address_.streams;
  hello.context = shared_.id;
  hello.number = number_;
  TUTTI_ASSIGN(hello.nonce, sdk::make_nonce());
  TUTTI_ASSIGN(hello.proof,
               sdk::prove(address_.secret, sdk::Side::kConnector, stream.challenge.nonce, hello.nonce, hello.proved()));
  return {};
}

Status Connecting::check(const Stream& stream) const {
  TUTTI_ASSIGN(const sdk::Proof expected, sdk::prove(address_.secret, sdk::Side::kAcceptor, stream.challenge.nonce,
                                                     stream.hello.nonce, stream.hello.proved()));
  if (sdk::same(expected, stream.proof)) return {};
  return {Code::kMismatch,
          fmt::format("{} cannot prove that it is the rank it pretends to be; another process has taken its port",
                      to_.to_string())};
}

/// True when the whole message has been read.
Result<bool> Connecting::read(Stream& stream, void* to, size_t bytes) {
  const ssize_t got =
      ::recv(stream.socket.get(), static_cast<uint8_t*>(to) + stream.moved, bytes - stream.moved, MSG_DONTWAIT);
  if (got == 0) return lost(ECONNRESET);
  if (got > 0) stream.moved += static_cast<size_t>(got);
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return lost(errno);
  return stream.moved == bytes;
}

Result<bool> Connecting::write(Stream& stream, const void* from, size_t bytes) {
  const ssize_t sent = ::send(stream.socket.get(), static_cast<const uint8_t*>(from) + stream.moved,
                              bytes - stream.moved, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) stream.moved += static_cast<size_t>(sent);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return lost(errno);
  return stream.moved == bytes;
}

Status Connecting::lost(int error) {
  refused_ = error == ECONNREFUSED;
  if (refused_) {  // the listener is gone, but the link and the host are there
    return {Code::kRemote, fmt::format("{} refuses connections; the process there may have ended", to_.to_string())};
  }
  return {Code::kRemote, fmt::format("{} cannot be reached: {}; check the link, the interface setting and firewalls",
                                     to_.to_string(), errno_text(error))};
}

}  // namespace tutti::net_socket
