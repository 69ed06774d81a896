// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/door.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tutti::bootstrap {
namespace {

constexpr uint32_t kMaxHelloBytes = 1024;
constexpr int kMostAtOnce = 16;                                     ///< guests taken in before others are heard again
constexpr size_t kLastingHelloBytes = offsetof(Hello, rank_count);  ///< the same in every wire version

/// The Hello in a frame, when it is one and knows the secret.
std::optional<Hello> hello_in(const Frame& frame, const Secret& secret) {
  if (frame.header.kind != Kind::kHello || frame.payload.size() < kLastingHelloBytes) return std::nullopt;
  Hello hello;
  std::memcpy(&hello, frame.payload.data(), std::min(frame.payload.size(), sizeof hello));
  const bool whole = hello.wire_version != kWireVersion || frame.payload.size() == sizeof hello;
  if (hello.magic != kMagic || !same_secret(hello.secret, secret) || !whole) return std::nullopt;
  return hello;
}

}  // namespace

Door::Door(Poller& poller, base::Fd listener, const Secret& secret, base::Milliseconds hello_limit, Admit admit)
    : poller_(poller),
      listener_(std::move(listener)),
      secret_(secret),
      hello_limit_(hello_limit),
      admit_(std::move(admit)) {
  poller_.watch(listener_.get(), EPOLLIN, [this] { take_guests(); });
}

Door::~Door() {
  poller_.forget(listener_.get());
  poller_.cancel(pause_);
  while (!guests_.empty()) drop(guests_.begin());
}

void Door::take_guests() {
  // Bounded: guests that come faster than they are taken would fill the room before any of them is heard. The poller
  // calls again for the rest.
  for (int taken = 0; taken < kMostAtOnce;) {
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      add(std::move(socket));
      ++taken;
    } else if ((errno != EMFILE && errno != ENFILE) || !make_room()) {
      return;
    }
  }
}

/// Out of descriptors: takes what the hard limit allows, then the place of the oldest guest, then pauses.
bool Door::make_room() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return true;
  }
  if (!guests_.empty()) {
    drop(guests_.begin());
    return true;
  }
  poller_.change_events(listener_.get(), 0);
  pause_ =
      poller_.at(base::time_in(base::Milliseconds(100)), [this] { poller_.change_events(listener_.get(), EPOLLIN); });
  return false;
}

void Door::add(base::Fd socket) {
  if (guests_.size() == kMaxGuests) drop(guests_.begin());
  const Place guest = guests_.emplace(guests_.end());
  guest->limit = poller_.at(base::time_in(hello_limit_), [this, guest] { drop(guest); });
  guest->link = Link::open(poller_, std::move(socket), kMaxHelloBytes,
                           {.received = [this, guest](const Frame& frame) { hear(guest, frame); },
                            .closed = [this, guest](const std::string&) { drop(guest); }});
}

void Door::hear(Place guest, const Frame& frame) {
  const std::optional<Hello> hello = hello_in(frame, secret_);
  if (!hello) return drop(guest);
  const std::shared_ptr<Link> link = guest->link;
  const Status status = admit_(link, *hello, frame.header);
  if (status.ok()) {
    poller_.cancel(guest->limit);
    guests_.erase(guest);
  } else {
    // Stays a guest: it closes when it has read why, or its time is over.
    link->send({.kind = Kind::kReply, .code = static_cast<uint16_t>(status.code()), .id = frame.header.id},
               to_bytes(status.text()));
  }
}

void Door::drop(Place guest) {
  poller_.cancel(guest->limit);
  guest->link->close();
  guests_.erase(guest);
}

}  // namespace tutti::bootstrap
