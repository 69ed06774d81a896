// SPDX-License-Identifier: Apache-2.0
#include "shared.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

#include "system.h"

namespace tutti::net_socket {
Status Shared::watch(const Fd& socket) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, socket.get(), &event) == 0) return {};
  return system_error("cannot watch a socket (epoll_ctl)");
}

Result<DataSocket> Shared::make_stream(Fd socket, TlsStream::Role role, const StreamKey& key) const {
  if (tls == nullptr) return DataSocket(std::move(socket));
  TUTTI_ASSIGN(std::unique_ptr<TlsStream> stream, TlsStream::create(tls, socket.get(), role, key));
  return DataSocket(std::move(socket), std::move(stream));
}

/// Seconds of silence before the first probe.
int Shared::keepalive_idle_s() const {
  return static_cast<int>(std::clamp<int64_t>(grace.count() / 2000, 1, 30));
}

void Shared::prepare_receiver(const Fd& socket) const {
  const int64_t grace_ms = std::clamp<int64_t>(grace.count(), 1, 24 * 3600 * 1000);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, keepalive_idle_s());
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);  // seconds
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 127);  // beyond the user time-out, which decides
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(silence_limit(Milliseconds(grace_ms)).count()));
  if (!congestion.empty()) {
    if (const int error = set_congestion(socket, congestion); error != 0) {
      host.log(TUTTI_LOG_WARN, fmt::format("a connection goes without settings.net.socket.congestion, '{}': {}",
                                           congestion, errno_text(error)));
    }
  }
  if (buffer_bytes == 0) return;
  set_option(socket, SOL_SOCKET, SO_SNDBUF, buffer_bytes);
  set_option(socket, SOL_SOCKET, SO_RCVBUF, buffer_bytes);
}

// A receiver that takes no data for a long time, because its rank computes or is stopped, is no lost peer. But the user
// time-out of TCP would end the connection to it. So the sender judges unacknowledged data itself (Connection), and
// keep-alive alone judges an idle connection.
void Shared::prepare_sender(const Fd& socket) const {
  prepare_receiver(socket);
  const int idle_s = keepalive_idle_s();
  const auto limit_s = static_cast<int>(std::min<int64_t>(limit().count() / 1000, 100'000));
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  const int interval_s = std::max(1, (limit_s + 99) / 100);  // Linux takes at most 127 probes
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, std::max(2, (limit_s - idle_s) / interval_s));
}

}  // namespace tutti::net_socket
