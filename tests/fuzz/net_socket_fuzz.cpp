// SPDX-License-Identifier: Apache-2.0
// Any bytes from the network at each place where net-socket reads them: hellos at a listener, answers of a listener,
// headers and payloads of a connection, frames of a connection with rails. The first byte chooses the place.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "fuzz/stranger.h"
#include "net-socket/connecting.h"
#include "net-socket/connection.h"
#include "net-socket/listener.h"
#include "net-socket/rail_receiver.h"
#include "net-socket/rail_sender.h"
#include "net-socket/system.h"

namespace {

using namespace tutti::net_socket;
using namespace tutti::fuzz;

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

SocketAddress loopback() {
  const uint8_t ip[] = {127, 0, 0, 1};
  return SocketAddress(ip, 0);
}

/// `proves`: the hello carries the right proof, with any further content.
void hear_hello(Bytes bytes, bool proves) {
  static std::unique_ptr<Listener> listener;
  static unsigned inputs = 0;
  if (inputs++ % 64 == 0)
    listener = *Listener::open(std::array{loopback()}, shared(2));  // drops half of a connection's streams
  const Fd socket = dial<Fd>(listener->address().port);
  Challenge challenge;
  demand(hear(*listener, socket, challenge));
  const size_t length = proves ? sizeof(Hello) : std::min(bytes.size(), sizeof(Hello));
  Hello hello = object_from<Hello>(bytes);
  if (proves) {
    hello.proof = *tutti::sdk::prove(listener->address().secret, tutti::sdk::Side::kConnector, challenge.nonce,
                                     hello.nonce, hello.proved());
  }
  say(socket, &hello, length);
  for (int round = 0; round < 3; ++round) {
    auto accepted = listener->accept();
    demand(accepted.ok());
    demand(proves || *accepted == nullptr);
  }
}

/// A connect whose listener answers with these bytes.
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
  const Fd socket = take_guest(listener);
  say(socket, bytes.data(), bytes.size());
  drive_in_vain(*connecting);  // none of these bytes is a proof
}

/// Two streams, of which the far ends belong to the stranger.
struct Streams {
  std::vector<Fd> near, far;
};

Streams make_streams() {
  Streams streams;
  for (int i = 0; i < 2; ++i) {
    int pair[2];
    demand(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0);
    streams.near.emplace_back(pair[0]);
    streams.far.emplace_back(pair[1]);
  }
  return streams;
}

std::vector<RailStream> rails_of(Streams& streams) {
  std::vector<RailStream> rails;
  for (uint32_t i = 0; i < 2; ++i) rails.push_back({i, DataSocket(std::move(streams.near[i]))});
  return rails;
}

/// Sends the bytes over the far ends, which take turns in parts, and tests the requests until one fails.
void take_turns(Bytes bytes, const Streams& streams, tutti::sdk::Connection& connection,
                std::vector<tutti::sdk::Request*> requests) {
  for (size_t turn = 0; !bytes.empty(); ++turn) {
    const size_t part = std::min<size_t>(bytes.size(), 1 + bytes[0]);
    ::send(streams.far[turn % 3 == 2 ? 1 : 0].get(), bytes.data(), part, MSG_NOSIGNAL);
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

/// As the sender of messages.
void receive(Bytes bytes, Streams& streams, tutti::sdk::Connection& connection) {
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<tutti::sdk::Request*> requests;
  for (uint64_t size : {0u, 1u, 16u, 100u, 1000u}) {
    buffers.emplace_back(size);
    void* address = buffers.back().data();
    const uint32_t tag = 0;
    void* none = nullptr;
    tutti::sdk::Request* request = nullptr;
    demand(connection.recv(1, &address, &size, &tag, &none, request).ok() && request != nullptr);
    requests.push_back(request);
  }
  take_turns(bytes, streams, connection, std::move(requests));
}

void receive_on_streams(Bytes bytes) {
  Streams streams = make_streams();
  std::vector<DataSocket> near;
  for (Fd& fd : streams.near) near.emplace_back(std::move(fd));
  const Partner partner{{std::byte{1}}, {std::byte{2}}, 0};  // the greater id, so that its sender may move
  Connection connection(std::move(near), false, shared(2), partner);
  receive(bytes, streams, connection);
}

void receive_on_rails(Bytes bytes) {
  Streams streams = make_streams();
  RailReceiver connection(rails_of(streams), shared(2));
  receive(bytes, streams, connection);
}

/// As the receiver of messages.
void send_on_rails(Bytes bytes) {
  Streams streams = make_streams();
  RailSender connection(rails_of(streams), shared(2));
  const std::vector<uint8_t> data(1000);
  std::vector<tutti::sdk::Request*> requests;
  for (uint64_t size : {0u, 1u, 16u, 100u, 1000u}) {
    tutti::sdk::Request* request = nullptr;
    demand(connection.send(data.data(), size, 0, nullptr, request).ok() && request != nullptr);
    requests.push_back(request);
  }
  take_turns(bytes, streams, connection, std::move(requests));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return choose(data, size,
                {[](Bytes bytes) { hear_hello(bytes, false); }, [](Bytes bytes) { hear_hello(bytes, true); },
                 answer_connecting, receive_on_streams, receive_on_rails, send_on_rails});
}
