// SPDX-License-Identifier: Apache-2.0
// Any bytes at both ends of a stream with TLS, and changes of the bytes between two ends that know the key. The first
// byte chooses. Every call must return, and no end may deliver bytes that the other end has not sent.
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "net-socket/system.h"
#include "net-socket/tls.h"

namespace {

using namespace tutti::net_socket;
using Bytes = std::span<const uint8_t>;
using Role = TlsStream::Role;

void demand(bool holds) {
  if (!holds) std::abort();
}

const std::shared_ptr<const Tls>& tls() {
  static const auto made = [] {
    Tls::Options options;
    options.records_per_key = 2;
    return *Tls::create(options);
  }();
  return made;
}

struct Pair {
  Fd near, far;
};
Pair make_pair() {
  int pair[2];
  demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
  return {Fd(pair[0]), Fd(pair[1])};
}

/// An end that hears these bytes and then the end of the stream. Without the key, no bytes get past the handshake.
void hear(Bytes bytes, Role role) {
  const Pair pair = make_pair();
  const auto stream = *TlsStream::create(tls(), pair.near.get(), role, StreamKey());
  for (bool more = true; more;) {
    const size_t part = bytes.empty() ? 0 : std::min<size_t>(bytes.size(), 1 + bytes[0] * 4u);
    if (part > 0) demand(::send(pair.far.get(), bytes.data(), part, MSG_NOSIGNAL) == static_cast<ssize_t>(part));
    bytes = bytes.subspan(part);
    more = part > 0;
    if (!more) ::shutdown(pair.far.get(), SHUT_WR);
    demand(stream->shake_hands() == -1);
    if (errno != EAGAIN) return;
    demand(more);
  }
}

/// Carries the bytes that are there. The plan's pairs of bytes give the distance to the next change, and its bits.
struct Way {
  int from, to;
  Bytes plan;
  size_t until = 0;

  void carry() {
    std::array<uint8_t, 4096> part;
    const ssize_t got = ::recv(from, part.data(), part.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    for (ssize_t i = 0; i < got && plan.size() >= 2; ++i) {
      if (until++ < plan[0] * 16u) continue;
      part[static_cast<size_t>(i)] ^= plan[1];
      plan = plan.subspan(2);
      until = 0;
    }
    ::send(to, part.data(), static_cast<size_t>(got), MSG_NOSIGNAL);
  }
};

/// True: all data have arrived. False: an end has failed, or the rounds were too few.
bool change(Bytes plan) {
  const Pair near = make_pair(), far = make_pair();
  const auto sender = *TlsStream::create(tls(), near.near.get(), Role::kSends, StreamKey());
  const auto receiver = *TlsStream::create(tls(), far.near.get(), Role::kReceives, StreamKey());
  std::array<uint8_t, 3000> data;
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 7);
  std::array<uint8_t, 3000> out;
  const size_t half = plan.size() / 4 * 2;
  Way forward{near.far.get(), far.far.get(), plan.subspan(half)};
  Way back{far.far.get(), near.far.get(), plan.first(half)};
  size_t sent = 0, got = 0;
  for (int round = 0; round < 40 && got < out.size(); ++round) {
    for (TlsStream* end : {sender.get(), receiver.get()}) {
      if (!end->ready() && end->shake_hands() != 0 && errno != EAGAIN) return false;
      forward.carry();
      back.carry();
    }
    if (sender->ready() && sent < data.size()) {
      const iovec piece{data.data() + sent, std::min<size_t>(data.size() - sent, 500)};
      const ssize_t now = sender->send({&piece, 1});
      if (now < 0 && errno != EAGAIN) return false;
      if (now > 0) sent += static_cast<size_t>(now);
    }
    forward.carry();
    if (!receiver->ready()) continue;
    bool drained = false;
    const ssize_t now = receiver->recv(out.data() + got, out.size() - got, drained);
    if (now > 0) {
      demand(got + static_cast<size_t>(now) <= sent);
      demand(std::memcmp(out.data() + got, data.data() + got, static_cast<size_t>(now)) == 0);
      got += static_cast<size_t>(now);
    } else if (now == 0 || errno != EAGAIN) {
      return false;
    }
  }
  return got == out.size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Bytes bytes(data + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      hear(bytes, Role::kReceives);
      break;
    case 1:
      hear(bytes, Role::kSends);
      break;
    default:
      demand(change(bytes) || bytes.size() >= 2);  // with fewer bytes nothing was changed
  }
  return 0;
}
