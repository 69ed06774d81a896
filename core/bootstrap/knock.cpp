// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/knock.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "bootstrap/process.h"

namespace tutti::bootstrap {
namespace {

/// A hub under many strangers drops connections, so a rank tries again.
constexpr int kTries = 4;
constexpr base::Milliseconds kPause{100};

enum class Read { kDone, kClosed, kTimeout };

Read read_exactly(const base::Fd& socket, std::span<std::byte> bytes, base::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Read::kClosed;
    } else {
      pollfd readable = {.fd = socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&readable, 1, static_cast<int>(base::left_until(deadline).count())) == 0 &&
          base::Clock::now() >= deadline)
        return Read::kTimeout;
    }
  }
  return Read::kDone;
}

/// One exchange of proofs over one connection.
class Visit {
 public:
  Visit(const Endpoint& hub, const base::Fd& socket, base::Time deadline)
      : hub_(hub), socket_(socket), address_(hub.address.to_string()), deadline_(deadline) {}

  Status hear_challenge() {
    TUTTI_TRY(read(Kind::kChallenge, challenge_));
    return challenge_.magic == kMagic ? Status() : no_hub();
  }

  /// After a short first frame a socket takes all of this at once.
  Status say_hello(Header header, Hello& hello) {
    TUTTI_ASSIGN(hello.nonce, sdk::make_nonce());
    TUTTI_ASSIGN(hello.tag, tag_of(hub_.secret));
    TUTTI_ASSIGN(hello.proof, prove_hello(hub_.secret, sdk::Side::kConnector, challenge_.nonce, payload_of(hello)));
    header.kind = Kind::kHello;
    header.payload_bytes = sizeof hello;
    Bytes frame = payload_of(header);
    const Bytes payload = payload_of(hello);
    frame.insert(frame.end(), payload.begin(), payload.end());
    const ssize_t sent = ::send(socket_.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    return sent == static_cast<ssize_t>(frame.size()) ? Status() : turned_away();
  }

  Status hear_welcome(const Hello& hello) {
    sdk::Proof proof;
    TUTTI_TRY(read(Kind::kWelcome, proof));
    TUTTI_ASSIGN(const sdk::Proof right,
                 prove_hello(hub_.secret, sdk::Side::kAcceptor, challenge_.nonce, payload_of(hello)));
    if (sdk::same(proof, right)) return {};
    return Status(Code::kRemote, fmt::format("the process at {} does not know the secret of this unique id: it serves "
                                             "another job, or the id is an old one",
                                             address_));
  }

  /// The connection closed where a hub under pressure closes it, too.
  bool closed() const { return closed_; }

 private:
  template <class T>
  Status read(Kind kind, T& payload) {
    Header header;
    TUTTI_TRY(read_bytes(std::as_writable_bytes(std::span(&header, 1)), kind));
    if (header.kind != kind || header.payload_bytes != sizeof payload) return no_hub();
    return read_bytes(std::as_writable_bytes(std::span(&payload, 1)), kind);
  }

  Status read_bytes(std::span<std::byte> bytes, Kind kind) {
    switch (read_exactly(socket_, bytes, deadline_)) {
      case Read::kDone:
        return {};
      case Read::kTimeout:
        return Status(Code::kTimeout,
                      fmt::format("the process at {} accepts no connection: it is stopped, has no descriptor left "
                                  "(ulimit -n), or is no hub",
                                  address_));
      case Read::kClosed:
        closed_ = true;
        return kind == Kind::kChallenge
                   ? Status(Code::kRemote, fmt::format("the process at {} closed the connection at once: it has no "
                                                       "descriptor left (ulimit -n), ends, or is no hub",
                                                       address_))
                   : turned_away();
    }
    return {};
  }

  Status turned_away() {
    closed_ = true;
    return Status(Code::kRemote,
                  fmt::format("the hub at {} does not accept the secret of this unique id: it serves another job, all "
                              "ranks of this one have joined before, or the ranks differ in TUTTI_ID_SECRET or "
                              "TUTTI_ID_SECRET_FILE",
                              address_));
  }

  Status no_hub() const {
    return Status(Code::kRemote, fmt::format("the process at {} is no hub of this version of Tutti: another program "
                                             "has the port, or nodes have different versions",
                                             address_));
  }

  const Endpoint& hub_;
  const base::Fd& socket_;
  const std::string address_;
  const base::Time deadline_;
  Challenge challenge_;
  bool closed_ = false;
};

}  // namespace

Hello hello_of(int rank, int rank_count, base::Milliseconds peer_loss, const std::string& host) {
  Hello hello;
  hello.rank = rank;
  hello.rank_count = rank_count;
  hello.pid = static_cast<uint32_t>(::getpid());
  hello.process = process_token();
  hello.peer_loss_ms = static_cast<uint32_t>(std::clamp<int64_t>(peer_loss.count(), 0, UINT32_MAX));
  std::copy_n(host.begin(), std::min(host.size(), hello.host.size()), hello.host.begin());
  return hello;
}

Result<base::Fd> knock(const Endpoint& hub, Header header, Hello hello, base::Time deadline) {
  for (int attempt = 1;; ++attempt) {
    TUTTI_ASSIGN(base::Fd socket, base::connect_to(hub.address, deadline));
    Visit visit(hub, socket, deadline);
    header.timeout_ms = static_cast<uint32_t>(base::left_until(deadline).count());
    Status status = visit.hear_challenge();
    if (status.ok()) status = visit.say_hello(header, hello);
    if (status.ok()) status = visit.hear_welcome(hello);
    if (status.ok()) return socket;
    if (!visit.closed() || attempt == kTries || base::Clock::now() >= deadline) return status;
    ::poll(nullptr, 0, static_cast<int>(kPause.count()));
  }
}

}  // namespace tutti::bootstrap
