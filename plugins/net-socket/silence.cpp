// SPDX-License-Identifier: Apache-2.0
#include "silence.h"

#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tutti::net_socket {
namespace {

constexpr Milliseconds kCheckInterval{250};

bool get_info(const Fd& socket, tcp_info& info) {
  socklen_t length = sizeof info;
  return getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &length) == 0;
}

}  // namespace

Milliseconds Acknowledgements::silence(const Fd& socket) {
  const Time now = Clock::now();
  tcp_info info{};
  if (!get_info(socket, info)) return Milliseconds(0);
  if (info.tcpi_unacked == 0 || info.tcpi_bytes_acked != acknowledged_) {
    acknowledged_ = info.tcpi_bytes_acked;
    since_ = now;
    return Milliseconds(0);
  }
  const Milliseconds silence(info.tcpi_last_ack_recv);
  const Milliseconds between_attempts(info.tcpi_rto / 1000);
  if (2 * silence <= 3 * between_attempts) return Milliseconds(0);
  return std::min(silence, std::chrono::duration_cast<Milliseconds>(now - since_));
}

bool Acknowledgements::have_ended(const Fd& socket, Milliseconds limit) {
  const Time now = Clock::now();
  if (now < next_check_) return false;
  next_check_ = now + kCheckInterval;
  return silence(socket) > limit;
}

Milliseconds time_since_sign(const Fd& socket) {
  tcp_info info{};
  if (!get_info(socket, info)) return Milliseconds::max();
  return Milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
}

std::string reason_of(int error, Milliseconds limit) {
  if (error == 0) return "the process at the other end closed it";
  const std::string why = errno_text(error);
  if (error == ECONNRESET || error == EPIPE) return why + "; the process at the other end may have ended";
  return fmt::format(
      "no sign of the other host for {} s ({}); check the link, or raise timeouts.peer_loss if it may be "
      "down for longer",
      static_cast<double>(limit.count()) / 1000, why);
}

}  // namespace tutti::net_socket
