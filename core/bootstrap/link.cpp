// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/link.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>

#include "base/socket.h"

namespace tutti::bootstrap {

std::shared_ptr<Link> Link::open(Poller& poller, base::Fd socket, uint32_t max_payload_bytes, Events events) {
  auto link = std::make_shared<Link>(poller, std::move(socket), max_payload_bytes, std::move(events));
  poller.watch(link->socket_.get(), EPOLLIN, [weak = std::weak_ptr(link)] {
    if (const auto self = weak.lock()) self->serve();
  });
  return link;
}

Link::Link(Poller& poller, base::Fd socket, uint32_t max_payload_bytes, Events events)
    : poller_(poller),
      socket_(std::move(socket)),
      here_(base::local_address(socket_).to_string()),
      there_(base::remote_address(socket_).to_string()),
      max_payload_bytes_(max_payload_bytes) {
  set_events(std::move(events));
}

void Link::send(Header header, std::shared_ptr<const Bytes> payload) {
  if (!is_open()) return;
  header.payload_bytes = payload ? static_cast<uint32_t>(payload->size()) : 0;
  outgoing_.push_back({header, std::move(payload)});
  flush();
}

void Link::when_sent(std::function<void()> done) {
  sent_ = std::move(done);
  report_sent();
}

void Link::report_sent() {
  if (!sent_ || !outgoing_.empty()) return;
  const auto done = std::exchange(sent_, nullptr);
  done();
}

void Link::trust(uint32_t max_payload_bytes, base::Milliseconds loss) {
  max_payload_bytes_ = max_payload_bytes;
  base::set_connection_options(socket_, loss);
}

void Link::set_events(Events events) {
  events_ = std::make_shared<const Events>(std::move(events));
}

void Link::close() {
  if (!is_open()) return;
  poller_.forget(socket_.get());
  socket_.reset();
  outgoing_.clear();
  report_sent();
}

void Link::serve() {
  // Bounded, so that one busy peer does not starve all peers; the poller calls again for the rest.
  for (int reads = 16; reads > 0 && is_open() && receive(); --reads) {
  }
  flush();
}

bool Link::receive() {
  const size_t in_header = std::min(received_, sizeof(Header));
  const bool header_done = in_header == sizeof(Header);
  char* const target = header_done ? reinterpret_cast<char*>(incoming_.payload.data()) + (received_ - sizeof(Header))
                                   : reinterpret_cast<char*>(&incoming_.header) + in_header;
  const size_t wanted =
      header_done ? incoming_.header.payload_bytes - (received_ - sizeof(Header)) : sizeof(Header) - in_header;
  const ssize_t count = ::recv(socket_.get(), target, wanted, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  // A process that ends with unread data resets its connections.
  if (count == 0 || (count < 0 && errno == ECONNRESET))
    return lose({Loss::Kind::kEnded, "its process ended without leaving"});
  if (count < 0) return lose({Loss::Kind::kBroke, base::errno_text(errno)});
  received_ += static_cast<size_t>(count);
  if (received_ == sizeof(Header)) {
    if (incoming_.header.payload_bytes > max_payload_bytes_)
      return lose({Loss::Kind::kNonsense, "it sent more than a rank may"});
    incoming_.payload.resize(incoming_.header.payload_bytes);
  }
  if (received_ >= sizeof(Header) && received_ == sizeof(Header) + incoming_.header.payload_bytes) deliver();
  return true;
}

void Link::deliver() {
  Frame frame = std::exchange(incoming_, {});
  received_ = 0;
  const auto events = events_;  // the called function may replace it
  events->received(std::move(frame));
}

void Link::flush() {
  while (is_open() && !outgoing_.empty()) {
    Outgoing& next = outgoing_.front();
    const size_t payload_bytes = next.payload ? next.payload->size() : 0;
    const size_t of_header = std::min(next.sent, sizeof(Header));
    const size_t of_payload = next.sent - of_header;
    std::array<iovec, 2> parts = {
        iovec{reinterpret_cast<char*>(&next.header) + of_header, sizeof(Header) - of_header},
        iovec{payload_bytes == 0 ? nullptr : const_cast<std::byte*>(next.payload->data()) + of_payload,
              payload_bytes - of_payload}};
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count < 0) break;  // full, or broken: then receiving finds out why
    next.sent += static_cast<size_t>(count);
    if (next.sent == sizeof(Header) + payload_bytes) outgoing_.pop_front();
  }
  report_sent();
  const bool waits = is_open() && !outgoing_.empty();
  if (waits == waits_to_send_ || !is_open()) return;
  waits_to_send_ = waits;
  poller_.change_events(socket_.get(), waits ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

bool Link::lose(const Loss& loss) {
  close();
  const auto events = events_;
  events->closed(loss);
  return false;
}

}  // namespace tutti::bootstrap
