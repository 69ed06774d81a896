// SPDX-License-Identifier: Apache-2.0
// Any bytes from the network at each place where net-socket reads them: hellos at a listener, answers of a listener,
// headers and payloads of a connection. The first byte chooses the place.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "net-socket/connecting.h"
#include "net-socket/connection.h"
#include "net-socket/listener.h"
#include "net-socket/system.h"

namespace {

using namespace tutti::net_socket;
using Bytes = std::span<const uint8_t>;

const Shared& shared(uint32_t streams) {
  static std::unique_ptr<Shared> all[2];
  auto& one = all[streams - 1];
  if (one == nullptr) {
    one = std::make_unique<Shared>();
    one->streams = streams;
    one->stripe_bytes = 64;
    one->grace = Milliseconds(1000);
    one->events = Fd(epoll_create1(EPOLL_CLOEXEC));
  }
  return *one;
}

void demand(bool holds) {
  if (!holds) std::abort();
}

Fd dial(const Address& address) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress to(std::span(address.ip).first(4), address.port);
  demand(::connect(socket.get(), to.data(), to.size()) == 0);
  const linger at_once{1, 0};  // no port waits in TIME_WAIT
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  return socket;
}

SocketAddress loopback() {
  const uint8_t ip[] = {127, 0, 0, 1};
  return SocketAddress(ip, 0);
}

/// `proves`: the hello carries the right proof, with any further content.
void hear_hello(Bytes bytes, bool proves) {
  static std::unique_ptr<Listener> listener;
  static unsigned inputs = 0;
  if (inputs++ % 64 == 0) listener = *Listener::open(loopback(), shared(2));  // drops half of a connection's streams
  const Fd socket = dial(listener->address());
  Challenge challenge;
  for (size_t read = 0; read < sizeof challenge;) {
    demand(listener->accept().ok());
    auto* const to = reinterpret_cast<uint8_t*>(&challenge) + read;
    const ssize_t got = ::recv(socket.get(), to, sizeof challenge - read, MSG_DONTWAIT);
    if (got > 0) read += static_cast<size_t>(got);
  }
  Hello hello;
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof hello));
  if (proves) {
    hello.proof = *tutti::sdk::prove(listener->address().secret, tutti::sdk::Side::kConnector, challenge.nonce,
                                     hello.nonce, hello.proved());
  }
  const size_t length = proves ? sizeof hello : std::min(bytes.size(), sizeof hello);
  if (length > 0) ::send(socket.get(), &hello, length, MSG_NOSIGNAL);
  for (int round = 0; round < 3; ++round) {
    auto accepted = listener->accept();
    demand(accepted.ok());
    demand(proves || *accepted == nullptr);
  }
}

/// A listener that answers with these bytes.
void answer_connecting(Bytes bytes) {
  static const Fd listener = *listen_on(loopback());
  Address address;
  address.family = AF_INET;
  address.port = local_address(listener).port();
  address.streams = 1;
  const uint8_t ip[] = {127, 0, 0, 1};
  std::copy(std::begin(ip), std::end(ip), address.ip.begin());
  auto connecting = *Connecting::start(address, shared(1));
  demand(connecting->advance().ok());
  Fd socket;
  while (!socket.valid()) socket = Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!bytes.empty()) ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  for (int round = 0; round < 3; ++round) {
    auto made = connecting->advance();
    if (!made.ok()) return;
    demand(*made == nullptr);  // none of these bytes is a proof
  }
}

/// As the sender of messages, over two streams that take turns in parts.
void receive(Bytes bytes) {
  std::vector<DataSocket> near;
  std::vector<Fd> far;
  for (int i = 0; i < 2; ++i) {
    int pair[2];
    demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    near.emplace_back(Fd(pair[0]));
    far.emplace_back(pair[1]);
  }
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<tutti::sdk::Request*> requests;
  Connection connection(std::move(near), false, shared(2));
  for (uint64_t size : {0u, 1u, 16u, 100u, 1000u}) {
    buffers.emplace_back(size);
    void* address = buffers.back().data();
    const uint32_t tag = 0;
    void* none = nullptr;
    tutti::sdk::Request* request = nullptr;
    demand(connection.recv(1, &address, &size, &tag, &none, request).ok() && request != nullptr);
    requests.push_back(request);
  }
  for (size_t turn = 0; !bytes.empty(); ++turn) {
    const size_t part = std::min<size_t>(bytes.size(), 1 + bytes[0]);
    ::send(far[turn % 3 == 2 ? 1 : 0].get(), bytes.data(), part, MSG_NOSIGNAL);
    bytes = bytes.subspan(part);
    for (size_t i = 0; i < requests.size();) {
      uint64_t got = 0;
      bool done = false;
      if (!connection.test(*requests[i], done, &got).ok()) return;
      demand(!done || got <= 1000);
      if (done) {
        requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const Bytes bytes(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      hear_hello(bytes, false);
      break;
    case 1:
      hear_hello(bytes, true);
      break;
    case 2:
      answer_connecting(bytes);
      break;
    default:
      receive(bytes);
  }
  return 0;
}
