// SPDX-License-Identifier: Apache-2.0
// The socket of one stream of a connection, plain or with TLS.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "system.h"
#include "tls.h"

namespace tutti::net_socket {

/// Functions return as the functions of sockets and of TlsStream do. One thread at a time; without TLS, one thread
/// that sends and one thread that receives.
class DataSocket {
 public:
  DataSocket() = default;
  explicit DataSocket(Fd socket, std::unique_ptr<TlsStream> tls = nullptr)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}
  DataSocket(DataSocket&& other) noexcept
      : socket_(std::move(other.socket_)), tls_(std::move(other.tls_)), both_ways_(other.both_ways_.load()) {}
  DataSocket& operator=(DataSocket&&) = delete;
  ~DataSocket() {
    if (both_ways_) drain();
  }

  const Fd& fd() const { return socket_; }
  bool has_tls() const { return tls_ != nullptr; }
  /// TLS's complaint, after EBADMSG.
  std::string tls_failure() const { return tls_ != nullptr ? tls_->failure() : std::string(); }

  /// From now on the socket carries data both ways.
  void use_both_ways() { both_ways_ = true; }
  bool both_ways() const { return both_ways_.load(std::memory_order_relaxed); }

  /// Data can go. Without TLS this is so from the start.
  bool ready() const { return tls_ == nullptr || tls_->ready(); }
  /// Goes on with TLS's handshake. Only for a socket that is not ready.
  int shake_hands() { return tls_->shake_hands(); }
  ssize_t send(std::span<const iovec> vectors) {
    if (tls_ != nullptr) return tls_->send(vectors);
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors.data());
    message.msg_iovlen = vectors.size();
    return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | end_of(vectors));
  }
  /// `drained`: the socket had no more than this.
  ssize_t recv(void* to, size_t bytes, bool& drained) {
    if (tls_ != nullptr) return tls_->recv(to, bytes, drained);
    const ssize_t got = ::recv(socket_.get(), to, bytes, MSG_DONTWAIT);
    drained = got > 0 && static_cast<size_t>(got) < bytes;
    return got;
  }

 private:
  static constexpr size_t kOwnSegments = size_t{16} << 10;

  /// Linux keeps the last segment of a long message back while earlier segments are in the queue of the device
  /// (tcp_autocorking), in the hope of more data. On a link that is busy, this took 10 to 20 ms. MSG_EOR says that no
  /// data follows. Short messages that follow each other may share a segment.
  static int end_of(std::span<const iovec> vectors) {
    size_t bytes = 0;
    for (const iovec& vector : vectors) bytes += vector.iov_len;
    return bytes >= kOwnSegments ? MSG_EOR : 0;
  }

  /// Takes received data that no thread has read. A close with unread data would drop the sent data that is still on
  /// its way.
  void drain() {
    ::shutdown(socket_.get(), SHUT_WR);
    std::array<char, 1 << 16> unread;
    for (int reads = 0; reads < 1024; ++reads) {
      if (::recv(socket_.get(), unread.data(), unread.size(), MSG_DONTWAIT) <= 0) return;
    }
  }

  Fd socket_;
  std::unique_ptr<TlsStream> tls_;      // ends before its socket
  std::atomic<bool> both_ways_{false};  // set by the thread that moves, read by the thread of the other direction
};

}  // namespace tutti::net_socket
