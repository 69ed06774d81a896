// SPDX-License-Identifier: Apache-2.0
#include "shared.h"

#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/socket.h"

namespace tutti::net_socket {
namespace {

void set_option(const base::Fd& socket, int level, int option, int value) {
  setsockopt(socket.get(), level, option, &value, sizeof value);  // only tunes
}

}  // namespace

Status Shared::watch(const base::Fd& socket) const {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  if (epoll_ctl(events.get(), EPOLL_CTL_ADD, socket.get(), &event) == 0) return {};
  return base::system_error("cannot watch a socket (epoll_ctl)");
}

void Shared::prepare_receiver(const base::Fd& socket) const {
  base::set_connection_options(socket, grace);
  if (buffer_bytes == 0) return;
  set_option(socket, SOL_SOCKET, SO_SNDBUF, buffer_bytes);
  set_option(socket, SOL_SOCKET, SO_RCVBUF, buffer_bytes);
}

// A receiver that takes no data for a long time, because its rank computes or is stopped, is no lost peer. But the user
// time-out of TCP would end the connection to it. So the sender judges unacknowledged data itself (Connection), and
// keep-alive alone judges an idle connection.
void Shared::prepare_sender(const base::Fd& socket) const {
  prepare_receiver(socket);
  int idle_s = 1;
  socklen_t size = sizeof idle_s;
  getsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, &size);
  const auto limit_s = static_cast<int>(std::min<int64_t>(limit().count() / 1000, 100'000));
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, limit_s / 100));  // at most 127 probes
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, std::max(2, (limit_s - idle_s) / std::max(1, limit_s / 100)));
}

}  // namespace tutti::net_socket
