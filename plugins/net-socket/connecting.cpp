// SPDX-License-Identifier: Apache-2.0
#include "connecting.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "rail_sender.h"

namespace tutti::net_socket {
namespace {

constexpr Milliseconds kPause{50};       // between two attempts
constexpr Milliseconds kPatience{5000};  // with rails that do not answer, while another one does; guests stay for 10 s

SocketAddress address_of(uint16_t family, std::span<const uint8_t> ip, uint16_t port) {
  return SocketAddress(ip.first(family == AF_INET ? 4 : 16), port);
}

/// Failures that no further attempt can mend.
bool is_final(const Status& why) {
  return why.code() != Code::kRemote && why.code() != Code::kSystem;
}

}  // namespace

Result<std::unique_ptr<Connecting>> Connecting::start(const Address& address, const Shared& shared,
                                                      std::vector<Interface> own) {
  if ((address.family != AF_INET && address.family != AF_INET6) || address.streams == 0 ||
      address.streams > kMaxStreams || address.rails == 0 || address.rails > kMaxRails ||
      (address.rails > 1 && address.rails != address.streams)) {
    return Status(Code::kInvalidArgument,
                  "the handle is not one of this plugin; do all ranks use the same network plugin?");
  }
  std::unique_ptr<Connecting> connecting(new Connecting(address, shared));
  connecting->to_.push_back(address_of(address.family, address.ip, address.port));
  if (const bool here = shared.tls != nullptr; here != (address.tls != 0)) {
    return Status(
        Code::kMismatch,
        fmt::format("this rank sends {}, but the rank at {} takes only data {}; set settings.net.socket.tls to "
                    "the same value on all ranks",
                    here ? "with TLS" : "without TLS", connecting->to_.front().to_string(),
                    here ? "without TLS" : "with TLS"));
  }
  if (shared.rails != address.rails) {
    return Status(Code::kMismatch,
                  fmt::format("settings.net.socket.rails is {} on this rank, but {} on the rank at {}; set "
                              "settings.net.socket.rails to the same value on all ranks",
                              shared.rails, address.rails, connecting->to_.front().to_string()));
  }
  if (connecting->has_rails()) TUTTI_TRY(connecting->set_rails(std::move(own)));
  connecting->number_ = shared.pairs->next_number(address.context, connecting->to_.front().ip_text());
  return connecting;
}

Result<std::unique_ptr<sdk::Connection>> Connecting::advance() {
  if (streams_.empty() && Clock::now() < pause_until_) return std::unique_ptr<sdk::Connection>();
  const Status advanced = advance_streams();
  if (!advanced.ok()) {
    TUTTI_TRY(try_again(advanced));
    return std::unique_ptr<sdk::Connection>();
  }
  if (!std::all_of(streams_.begin(), streams_.end(),
                   [](const Stream& s) { return s.is(Step::kDone) || s.is(Step::kLeftOut); })) {
    return std::unique_ptr<sdk::Connection>();
  }
  if (has_rails()) return make_rails();
  std::vector<DataSocket> sockets;
  for (Stream& stream : streams_) {
    TUTTI_ASSIGN(DataSocket socket, finish(stream));
    sockets.push_back(std::move(socket));
  }
  std::optional<Partner> partner;
  if (shared_.pairs_up) partner = {address_.context, connection_, number_};
  return std::unique_ptr<sdk::Connection>(std::make_unique<Connection>(std::move(sockets), true, shared_, partner));
}

std::unique_ptr<sdk::Connection> Connecting::make_rails() {
  std::vector<RailStream> rails;
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].is(Step::kDone)) rails.push_back({i, DataSocket(std::move(streams_[i].socket))});
  }
  return std::make_unique<RailSender>(std::move(rails), shared_);
}

/// Takes the addresses of all rails. kMismatch: a rail would join two families of addresses.
Status Connecting::set_rails(std::vector<Interface> own) {
  own_ = std::move(own);
  for (uint32_t i = 0; i + 1 < address_.rails; ++i) {
    const RailAddress& further = address_.further[i];
    to_.push_back(address_of(further.family, further.ip, further.port));
  }
  for (size_t i = 0; i < to_.size(); ++i) {
    const Interface& from = own_[i % own_.size()];
    if (from.address.family() == to_[i].family()) continue;
    return {Code::kMismatch, fmt::format("rail {} would lead from {} ({}) to {}: set settings.net.socket.family to "
                                         "ipv4 or ipv6 on all ranks",
                                         i, from.address.ip_text(), from.name, to_[i].to_string())};
  }
  return {};
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
  streams_.resize(address_.streams);
  for (size_t i = 0; i < address_.streams; ++i) {
    auto opened = open_stream(i);
    if (opened.ok()) {
      streams_[i].socket = std::move(*opened);
    } else {
      TUTTI_TRY(leave_out(i, opened.status()));
    }
  }
  return {};
}

/// Ok: the connection goes without the rail. Otherwise `why`.
Status Connecting::leave_out(size_t index, const Status& why) {
  const bool has_other = std::any_of(streams_.begin(), streams_.end(), [&](const Stream& other) {
    return &other != &streams_[index] && !other.is(Step::kLeftOut);
  });
  if (!has_rails() || used_ != 0 || !has_other || is_final(why)) return why;
  refused_ = false;
  streams_[index] = Stream();
  streams_[index].step = Step::kLeftOut;
  const Interface& from = own_[index % own_.size()];
  const int32_t level = shared_.reported->is_first(from.address.ip_text() + " to " + to(index).ip_text())
                            ? TUTTI_LOG_WARN
                            : TUTTI_LOG_DEBUG;
  shared_.host.log(level, fmt::format("the rail from {} ({}) to {} is left out of a connection: {}",
                                      from.address.ip_text(), from.name, to(index).to_string(), why.text()));
  return {};
}

/// Chooses the rails that have brought a challenge, when all others are left out. The hellos then name them.
Status Connecting::choose_rails() {
  const auto has_challenge = [](const Stream& stream) { return stream.is(Step::kHello); };
  if (used_ != 0 || std::none_of(streams_.begin(), streams_.end(), has_challenge)) return {};
  if (!patience_end_) patience_end_ = time_in(kPatience);
  uint32_t used = 0;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].is(Step::kLeftOut)) continue;
    if (has_challenge(streams_[i])) {
      used |= 1u << i;
    } else if (Clock::now() > *patience_end_) {
      TUTTI_TRY(leave_out(i, lost(i, ETIMEDOUT)));
    } else {
      return {};
    }
  }
  used_ = used;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (has_challenge(streams_[i])) TUTTI_TRY(answer(streams_[i], i));
  }
  return {};
}

Status Connecting::advance_streams() {
  if (streams_.empty()) TUTTI_TRY(begin());
  for (size_t i = 0; i < streams_.size(); ++i) {
    const Status advanced = advance_stream(i);
    if (!advanced.ok()) TUTTI_TRY(leave_out(i, advanced));
  }
  if (has_rails()) TUTTI_TRY(choose_rails());
  // A listener whose process is stopped answers late; its host answers in its place, as long as the link is there.
  const bool waits =
      std::any_of(streams_.begin(), streams_.end(), [](const Stream& s) { return s.is(Step::kConnect); });
  if (!waits) silent_since_.reset();
  return waits && Clock::now() - *silent_since_ > shared_.limit() ? lost(0, ETIMEDOUT) : Status();
}

/// Ok: a further attempt follows.
Status Connecting::try_again(const Status& why) {
  streams_.clear();
  used_ = 0;
  patience_end_.reset();
  if (refused_ || is_final(why)) return why;
  const Time now = Clock::now();
  if (!silent_since_) silent_since_ = now;
  if (now - *silent_since_ > shared_.limit()) return why;
  pause_until_ = now + kPause;
  return {};
}

Result<Fd> Connecting::open_stream(size_t index) {
  TUTTI_ASSIGN(Fd stream, make_socket(to(index).family()));
  shared_.prepare_sender(stream);
  TUTTI_TRY(shared_.watch(stream));
  if (has_rails()) {
    const Interface& from = own_[index % own_.size()];
    if (lacks_link(from.name, stream)) return lost(index, ENETDOWN);
    if (::bind(stream.get(), from.address.data(), from.address.size()) != 0) return lost(index, errno);
  }
  if (::connect(stream.get(), to(index).data(), to(index).size()) != 0 && errno != EINPROGRESS)
    return lost(index, errno);
  return stream;
}

Status Connecting::advance_stream(size_t index) {
  Stream& stream = streams_[index];
  for (bool moved = true; moved;) {
    switch (stream.step) {
      case Step::kConnect: {
        TUTTI_ASSIGN(moved, connected(index));
        break;
      }
      case Step::kChallenge: {
        TUTTI_ASSIGN(moved, read(index, &stream.challenge, sizeof(Challenge)));
        if (moved) TUTTI_TRY(has_rails() ? check_version(index) : answer(stream, index));
        break;
      }
      case Step::kHello: {
        if (has_rails() && used_ == 0) return {};
        TUTTI_ASSIGN(moved, write(index, &stream.hello, sizeof(Hello)));
        break;
      }
      case Step::kProof: {
        TUTTI_ASSIGN(moved, read(index, &stream.proof, sizeof stream.proof));
        if (moved) TUTTI_TRY(check(index));
        break;
      }
      case Step::kDone:
      case Step::kLeftOut:
        return {};
    }
    if (!moved) break;
    stream.step = static_cast<Step>(static_cast<int>(stream.step) + 1);
    stream.moved = 0;
  }
  return {};
}

Result<bool> Connecting::connected(size_t index) {
  const Stream& stream = streams_[index];
  int error = 0;
  socklen_t error_length = sizeof error;
  getsockopt(stream.socket.get(), SOL_SOCKET, SO_ERROR, &error, &error_length);
  if (error != 0) return lost(index, error);
  tcp_info info{};
  socklen_t length = sizeof info;
  getsockopt(stream.socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length);
  return info.tcpi_state != TCP_SYN_SENT;  // the other side may have closed by now, which reading finds out
}

Status Connecting::check_version(size_t index) const {
  if (streams_[index].challenge.magic == kMagic) return {};
  return {Code::kVersionMismatch, fmt::format("{} does not speak the protocol of this version of net-socket; do all "
                                              "ranks use the same version?",
                                              to(index).to_string())};
}

Status Connecting::answer(Stream& stream, size_t index) {
  TUTTI_TRY(check_version(index));
  Hello& hello = stream.hello;
  hello.connection = connection_;
  hello.stream = static_cast<uint32_t>(index);
  hello.streams = address_.streams;
  hello.context = shared_.id;
  hello.number = number_;
  hello.used = used_;
  TUTTI_ASSIGN(hello.nonce, sdk::make_nonce());
  TUTTI_ASSIGN(hello.proof,
               sdk::prove(address_.secret, sdk::Side::kConnector, stream.challenge.nonce, hello.nonce, hello.proved()));
  return {};
}

Status Connecting::check(size_t index) const {
  const Stream& stream = streams_[index];
  TUTTI_ASSIGN(const sdk::Proof expected, sdk::prove(address_.secret, sdk::Side::kAcceptor, stream.challenge.nonce,
                                                     stream.hello.nonce, stream.hello.proved()));
  if (sdk::same(expected, stream.proof)) return {};
  return {Code::kMismatch,
          fmt::format("{} cannot prove that it is the rank it pretends to be; another process has taken its port",
                      to(index).to_string())};
}

/// True when the whole message has been read.
Result<bool> Connecting::read(size_t index, void* to, size_t bytes) {
  Stream& stream = streams_[index];
  const ssize_t got =
      ::recv(stream.socket.get(), static_cast<uint8_t*>(to) + stream.moved, bytes - stream.moved, MSG_DONTWAIT);
  if (got == 0) return lost(index, ECONNRESET);
  if (got > 0) stream.moved += static_cast<size_t>(got);
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return lost(index, errno);
  return stream.moved == bytes;
}

Result<bool> Connecting::write(size_t index, const void* from, size_t bytes) {
  Stream& stream = streams_[index];
  const ssize_t sent = ::send(stream.socket.get(), static_cast<const uint8_t*>(from) + stream.moved,
                              bytes - stream.moved, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) stream.moved += static_cast<size_t>(sent);
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return lost(index, errno);
  return stream.moved == bytes;
}

Status Connecting::lost(size_t index, int error) {
  refused_ = error == ECONNREFUSED;
  if (refused_) {  // the listener is gone, but the link and the host are there
    const char* const hint = to(index).is_loopback()
                                 ? ". Each host has a loopback of its own: if the other rank runs on a different host, "
                                   "choose an interface that leads to that host (settings.net.socket.interface)"
                                 : "";
    return {Code::kRemote,
            fmt::format("{} refuses connections; the process there may have ended{}", to(index).to_string(), hint)};
  }
  return {Code::kRemote, fmt::format("{} cannot be reached: {}; check the link, the interface setting and firewalls",
                                     to(index).to_string(), errno_text(error))};
}

}  // namespace tutti::net_socket
