// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/acceptor.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "log/log.h"
#include "tutti/sdk/descriptor_limit.h"

namespace tutti::bootstrap {
namespace {

constexpr uint32_t kMaxHelloBytes = 1024;
constexpr base::Milliseconds kRestWithoutRoom{100};
constexpr size_t kMostNamed = 1000;  // refused processes that a text counts
/// The same bytes in every version of the frames, and in every version from the first with proofs on.
constexpr size_t kLastingBytes = offsetof(Hello, tag);
constexpr size_t kLastingBytesWithProof = offsetof(Hello, rank_count);

/// The Hello in a frame, if the frame has its form.
std::optional<Hello> hello_in(const Frame& frame) {
  if (frame.header.kind != Kind::kHello || frame.payload.size() < kLastingBytes) return std::nullopt;
  Hello hello;
  std::memcpy(&hello, frame.payload.data(), std::min(frame.payload.size(), sizeof hello));
  const bool whole = hello.wire_version != kWireVersion || frame.payload.size() == sizeof hello;
  if (hello.magic != kMagic || !whole) return std::nullopt;
  return hello;
}

/// The acceptors on any free port, by poller and address.
using Shared = std::map<std::pair<const Poller*, std::string>, std::weak_ptr<Acceptor>>;
Shared& shared_acceptors() {
  static Shared acceptors;
  return acceptors;
}

}  // namespace

bool Acceptor::exists_at(Poller& poller, const base::SocketAddress& address) {
  const auto place = shared_acceptors().find({&poller, address.ip_text()});
  return address.port() == 0 && place != shared_acceptors().end() && !place->second.expired();
}

Result<std::shared_ptr<Acceptor>> Acceptor::at(Poller& poller, const base::SocketAddress& address, base::Fd listener) {
  if (exists_at(poller, address)) return shared_acceptors()[{&poller, address.ip_text()}].lock();
  if (!listener.valid()) {
    TUTTI_ASSIGN(listener, base::listen_on(address));
  }
  auto acceptor = std::make_shared<Acceptor>(poller, std::move(listener));
  if (address.port() == 0) shared_acceptors()[{&poller, address.ip_text()}] = acceptor;
  return acceptor;
}

Result<base::SocketAddress> Acceptor::serve(Poller& poller, const base::SocketAddress& address,
                                            const std::function<Status(std::shared_ptr<Acceptor>)>& use) {
  bool shares = false;
  poller.run([&] { shares = exists_at(poller, address); });
  base::Fd listener;
  if (!shares) {
    TUTTI_ASSIGN(listener, base::listen_on(address));
  }
  Result<base::SocketAddress> served = base::SocketAddress();
  poller.run([&] {
    auto acceptor = at(poller, address, std::move(listener));
    Status used = acceptor.status();
    if (acceptor.ok()) {
      served = (*acceptor)->address();
      used = use(*std::move(acceptor));
    }
    if (!used.ok()) served = used;
  });
  return served;
}

Acceptor::Acceptor(Poller& poller, base::Fd listener, base::Milliseconds hello_limit)
    : poller_(poller), listener_(std::move(listener)), hello_limit_(hello_limit) {
  poller_.watch(listener_.get(), EPOLLIN, [this] { take_guests(); });
}

Acceptor::~Acceptor() {
  poller_.forget(listener_.get());
  poller_.cancel(rest_);
  while (!guests_.empty()) drop(guests_.begin());
}

Result<Tag> Acceptor::open_for(const Secret& secret, Admit admit) {
  TUTTI_ASSIGN(const Tag tag, tag_of(secret));
  if (rooms_.emplace(tag, Room{secret, std::move(admit)}).second) {
    end_rest();
    return tag;
  }
  return Status(Code::kInvalidArgument, "two unique ids with one secret at one address");
}

void Acceptor::expect_many_for(const Tag& tag) {
  rooms_.at(tag).complete = false;
  end_rest();
}

void Acceptor::take_guests() {
  // Bounded: guests that come faster than they are taken would fill the room before any of them is heard. The poller
  // calls again for the rest.
  int taken = 0;
  while (taken < kMostAtOnce) {
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      add(std::move(socket));
      ++taken;
    } else if (errno != EMFILE && errno != ENFILE) {
      break;
    } else if (!make_room()) {
      return;
    }
  }
  if (taken > 0 && !expects_ranks()) rest(kRestWhenComplete);
}

bool Acceptor::expects_ranks() const {
  return std::any_of(rooms_.begin(), rooms_.end(), [](const auto& room) { return !room.second.complete; });
}

/// For a process that is out of descriptors: raises the limit to the hard limit, then drops the oldest guest, then
/// pauses.
bool Acceptor::make_room() {
  if (sdk::raise_descriptor_limit()) return true;
  warn_of_limit();
  if (!guests_.empty()) {
    drop(guests_.begin());
    return true;
  }
  rest(kRestWithoutRoom);
  return false;
}

/// Takes no guests for a time; they wait in the queue of the kernel.
void Acceptor::rest(base::Milliseconds time) {
  poller_.change_events(listener_.get(), 0);
  rest_ = poller_.at(base::time_in(time), [this] { end_rest(); });
}

void Acceptor::end_rest() {
  poller_.cancel(rest_);
  poller_.change_events(listener_.get(), EPOLLIN);
}

void Acceptor::warn_of_limit() {
  if (std::exchange(warned_, true)) return;
  log::warn(
      "bootstrap: this process has no descriptor left for connections to {}; ranks may be turned away. Raise the "
      "limit (ulimit -n)",
      address().to_string());
}

void Acceptor::add(base::Fd socket) {
  const auto nonce = sdk::make_nonce();
  if (!nonce.ok()) return log::warn("bootstrap: {}", nonce.status().to_string());
  const size_t most = expects_ranks() ? kMaxGuests : kMaxGuestsAtRest;
  while (guests_.size() >= most) drop(guests_.begin());
  const GuestAt guest = guests_.emplace(guests_.end());
  guest->nonce = *nonce;
  guest->limit = poller_.at(base::time_in(hello_limit_), [this, guest] { drop(guest); });
  guest->link = Link::open(poller_, std::move(socket), kMaxHelloBytes,
                           {.received = [this, guest](const Frame& frame) { hear(guest, frame); },
                            .closed = [this, guest](const Loss&) { drop(guest); }});
  guest->link->send({.kind = Kind::kChallenge}, payload_of(Challenge{.nonce = *nonce}));
}

void Acceptor::hear(GuestAt guest, const Frame& frame) {
  const std::optional<Hello> hello = hello_in(frame);
  const Room* const room = hello ? room_for(*guest, *hello, frame) : nullptr;
  if (room == nullptr) {
    if (hello) note_refusal(*guest, *hello, frame);
    return drop(guest);
  }
  const std::shared_ptr<Link> link = guest->link;
  if (hello->wire_version >= kFirstVersionWithProofs) {
    const auto proof = prove_hello(room->secret, sdk::Side::kAcceptor, guest->nonce, frame.payload);
    if (!proof.ok()) return drop(guest);
    link->send({.kind = Kind::kWelcome}, payload_of(*proof));
  }
  const Status status = Admit(room->admit)(link, *hello, frame.header);  // a copy: the hub may close its room
  if (status.ok()) {
    poller_.cancel(guest->limit);
    guests_.erase(guest);
  } else {
    // Stays a guest: it closes when it has read why, or its time is over.
    link->send({.kind = Kind::kReply, .code = static_cast<uint16_t>(status.code()), .id = frame.header.id},
               to_bytes(status.text()));
  }
}

/// The room whose secret the guest has proved to know; null if there is none.
const Acceptor::Room* Acceptor::room_for(const Guest& guest, const Hello& hello, const Frame& frame) const {
  if (hello.wire_version < kFirstVersionWithProofs) return room_of_earlier_version(frame);
  if (frame.payload.size() < kLastingBytesWithProof) return nullptr;
  const auto room = rooms_.find(hello.tag);
  if (room == rooms_.end()) return nullptr;
  const auto proof = prove_hello(room->second.secret, sdk::Side::kConnector, guest.nonce, frame.payload);
  return proof.ok() && sdk::same(*proof, hello.proof) ? &room->second : nullptr;
}

/// An earlier version sends the secret itself. It gets nothing but the news that the versions differ.
const Acceptor::Room* Acceptor::room_of_earlier_version(const Frame& frame) const {
  const std::byte* const secret = frame.payload.data() + offsetof(Hello, nonce);
  const auto knows = [&](const auto& room) {
    return ::CRYPTO_memcmp(secret, room.second.secret.data(), sizeof(Secret)) == 0;
  };
  const auto room = std::find_if(rooms_.begin(), rooms_.end(), knows);
  return room == rooms_.end() ? nullptr : &room->second;
}

/// A wrong secret names no hub, so each hub that expects ranks notes it.
void Acceptor::note_refusal(const Guest& guest, const Hello& hello, const Frame& frame) {
  const bool has_proof =
      hello.wire_version >= kFirstVersionWithProofs && frame.payload.size() >= kLastingBytesWithProof;
  if (!has_proof) return;
  const std::string& there = guest.link->there();
  for (auto& [tag, room] : rooms_) {
    if (room.complete) continue;
    if (room.refused.size() < kMostNamed) room.refused.insert(hello.process);
    room.last_refused = there.substr(0, there.rfind(':'));
  }
}

std::string Acceptor::text_of_refusals(const Tag& tag) const {
  const Room& room = rooms_.at(tag);
  if (room.refused.empty()) return {};
  const bool one = room.refused.size() == 1;
  return fmt::format(
      "; {} {} refused because {} wrong ({}from {}): give all ranks the same id, TUTTI_ID_SECRET or "
      "TUTTI_ID_SECRET_FILE",
      room.refused.size() < kMostNamed ? fmt::to_string(room.refused.size()) : fmt::format("at least {}", kMostNamed),
      one ? "process was" : "processes were", one ? "its secret is" : "their secrets are", one ? "" : "the last ",
      room.last_refused);
}

void Acceptor::drop(GuestAt guest) {
  poller_.cancel(guest->limit);
  guest->link->close();
  guests_.erase(guest);
}

}  // namespace tutti::bootstrap
