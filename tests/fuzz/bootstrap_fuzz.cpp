// SPDX-License-Identifier: Apache-2.0
// Any bytes from the network. The first byte chooses the receiver: the parsers of payloads, the acceptor of a hub, a
// hub that has admitted a rank, or a rank that has admitted a hub. Each may fail with an error only.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <string>

#include "bootstrap/bootstrap.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/host.h"
#include "bootstrap/hub.h"
#include "bootstrap/process.h"

using namespace tutti::bootstrap;  // NOLINT(google-build-using-namespace): a program of one file
namespace base = tutti::base;
namespace sdk = tutti::sdk;
using tutti::UniqueId;

namespace {

using Span = std::span<const std::byte>;

void parse(Span bytes) {
  static_cast<void>(decode_ending(bytes));
  static_cast<void>(decode_departure(1, bytes));
  static_cast<void>(decode_lineup(bytes, 4));
  static_cast<void>(decode_host(bytes));
  if (const auto entries = unpack(bytes); entries.ok()) {
    const Bytes again = pack(*entries);
    if (again.size() != bytes.size() || !std::equal(again.begin(), again.end(), bytes.begin())) std::abort();
  }
}

void set_blocking(const base::Fd& socket) {
  constexpr timeval kLimit = {.tv_sec = 10, .tv_usec = 0};
  ::fcntl(socket.get(), F_SETFL, 0);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kLimit, sizeof kLimit);
}

void say(const base::Fd& socket, Span bytes) {
  static_cast<void>(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

template <class T>
void say(const base::Fd& socket, Header header, const T& payload) {
  header.payload_bytes = sizeof payload;
  say(socket, payload_of(header));
  say(socket, payload_of(payload));
}

template <class T>
std::optional<T> try_to_hear(const base::Fd& socket) {
  struct {
    Header header;
    T payload;
  } frame;
  constexpr auto kBytes = static_cast<ssize_t>(sizeof(Header) + sizeof(T));
  if (::recv(socket.get(), &frame, sizeof(Header) + sizeof(T), MSG_WAITALL) != kBytes) return std::nullopt;
  return frame.payload;
}

template <class T>
T hear(const base::Fd& socket) {
  const auto payload = try_to_hear<T>(socket);
  if (!payload) std::abort();
  return *payload;
}

/// An address of this process alone, so that no other process connects to a port that was its own before.
const std::string& own_address() {
  static const std::string address = [] {
    const auto pid = static_cast<uint32_t>(::getpid());
    return fmt::format("127.{}.{}.{}:0", 1 + (pid >> 14) % 250, (pid >> 7) % 128, 1 + pid % 128);
  }();
  return address;
}

/// Says no more, and waits until the other side has heard it all and closes.
void wait_for_end(const base::Fd& socket) {
  ::shutdown(socket.get(), SHUT_WR);
  std::array<char, 4096> ignored;
  ssize_t count = 1;
  while (count > 0) count = ::recv(socket.get(), ignored.data(), ignored.size(), 0);
  if (count < 0 && errno == EAGAIN) std::abort();  // it hangs
}

base::Fd connect(const Endpoint& hub) {
  base::Fd socket = base::connect_to(hub.address, base::time_in(std::chrono::seconds(10))).value();
  set_blocking(socket);
  return socket;
}

void enter_as(const base::Fd& socket, const Endpoint& hub, int rank) {
  const auto challenge = hear<Challenge>(socket);
  Hello hello;
  hello.tag = tag_of(hub.secret).value();
  hello.rank = rank;
  hello.rank_count = 2;
  hello.process = process_token();
  hello.proof = prove_hello(hub.secret, sdk::Side::kConnector, challenge.nonce, payload_of(hello)).value();
  say(socket, {.kind = Kind::kHello, .id = 1, .timeout_ms = 1000}, hello);
  static_cast<void>(hear<sdk::Proof>(socket));
}

void visit_acceptor(Span bytes) {
  const Endpoint hub = endpoint_of(UniqueId::create_at(own_address()).value()).value();
  const base::Fd guest = connect(hub);
  say(guest, bytes);
  wait_for_end(guest);
  for (int rank = 0; rank < 2; ++rank) enter_as(connect(hub), hub, rank);  // the hub serves on, and ends
}

void speak_as_member(Span bytes) {
  const Endpoint hub = endpoint_of(UniqueId::create_at(own_address()).value()).value();
  const base::Fd first = connect(hub);
  const base::Fd second = connect(hub);
  enter_as(first, hub, 0);
  enter_as(second, hub, 1);
  say(first, bytes);
  wait_for_end(first);
  wait_for_end(second);
}

void speak_as_hub(Span bytes) {
  const base::Fd listener = base::listen_on(base::SocketAddress::parse(own_address()).value()).value();
  set_blocking(listener);
  const Endpoint hub{base::local_address(listener), {}};
  auto joining = std::async(std::launch::async, [&] {
    return Bootstrap::join(to_unique_id(hub), 0, 2, base::time_in(std::chrono::seconds(5))).status();
  });
  const base::Fd guest(::accept(listener.get(), nullptr, nullptr));
  set_blocking(guest);
  const Challenge challenge;
  say(guest, {.kind = Kind::kChallenge}, challenge);
  const auto hello = try_to_hear<Hello>(guest);
  if (!hello) {
    const auto status = joining.get();
    if (status.code() == tutti::Code::kTimeout) return;  // the machine stood still for a while
    fmt::print(stderr, "the rank says no hello: {}\n", status.to_string());
    std::abort();
  }
  say(guest, {.kind = Kind::kWelcome},
      prove_hello(hub.secret, sdk::Side::kAcceptor, challenge.nonce, payload_of(*hello)).value());
  say(guest, bytes);
  wait_for_end(guest);
  static_cast<void>(joining.get());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Span bytes = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 16) {
    case 0:
      visit_acceptor(bytes);
      break;
    case 1:
      speak_as_member(bytes);
      break;
    case 2:
      speak_as_hub(bytes);
      break;
    default:
      parse(bytes);
  }
  return 0;
}
