// SPDX-License-Identifier: Apache-2.0
// The socket network's handshake and listener, with other ends made by hand: strangers, impostors, friends that break
// off.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "base/fd.h"
#include "base/socket.h"
#include "net-socket/wire.h"
#include "unit/socket_handle.h"
#include "unit/socket_network.h"

namespace tutti {
namespace {

using net_socket::Address;
using net_socket::Challenge;
using net_socket::Header;
using net_socket::Hello;
using test::address_of;
using test::kLimit;
using test::kOneStream;
using test::random_bytes;
using test::SocketNetwork;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// Blocking, for at most kLimit.
base::Fd connect_to(const Address& address) {
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const base::SocketAddress to(std::span(address.ip).first(4), address.port);
  EXPECT_EQ(::connect(socket.get(), to.data(), to.size()), 0) << std::strerror(errno);
  const timeval limit{kLimit.count(), 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return socket;
}

template <class T>
bool read_whole(const base::Fd& socket, T& value) {
  return ::recv(socket.get(), &value, sizeof value, MSG_WAITALL) == sizeof value;
}
template <class T>
void write_whole(const base::Fd& socket, const T& value) {
  EXPECT_EQ(::send(socket.get(), &value, sizeof value, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof value));
}

/// Calls accept until `done`; the connection that it made, if any.
template <class Done>
void* accept_until(SocketNetwork& net, Done&& done) {
  void *state = nullptr, *connection = nullptr;
  const auto end = Clock::now() + kLimit;
  while (!done(connection) && Clock::now() < end) {
    const int32_t code = net.accept(&state, &connection);
    EXPECT_TRUE(code == TUTTI_OK || code == TUTTI_AGAIN);
  }
  EXPECT_TRUE(done(connection));
  return connection;
}

/// Whether the other side has closed the connection, or says anything.
bool is_closed(const base::Fd& socket) {
  uint8_t byte = 0;
  const ssize_t got = ::recv(socket.get(), &byte, 1, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

Hello answer(const Challenge& challenge, const net_socket::Secret& secret, const net_socket::Id& context = {}) {
  Hello hello;
  hello.context = context;
  hello.connection = test::required(sdk::make_nonce());
  hello.streams = 1;
  hello.nonce = test::required(sdk::make_nonce());
  hello.proof = test::required(sdk::prove(secret, sdk::Side::kConnector, challenge.nonce, hello.nonce, hello.proved()));
  return hello;
}

Challenge challenge_of(SocketNetwork& net, const base::Fd& socket) {
  accept_until(net, [&](void*) {
    uint8_t byte = 0;
    return ::recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  });
  Challenge challenge;
  EXPECT_TRUE(read_whole(socket, challenge));
  return challenge;
}

/// A friend made by hand: its socket, and the plugin's receiving connection.
std::pair<base::Fd, void*> befriend(SocketNetwork& net, const net_socket::Id& context = {}) {
  const Address address = address_of(net.handle());
  base::Fd socket = connect_to(address);
  const Challenge challenge = challenge_of(net, socket);
  const Hello hello = answer(challenge, address.secret, context);
  write_whole(socket, hello);
  void* connection = accept_until(net, [](void* made) { return made != nullptr; });
  net.owns(connection);
  sdk::Proof proof;
  EXPECT_TRUE(read_whole(socket, proof));
  EXPECT_EQ(proof, test::required(
                       sdk::prove(address.secret, sdk::Side::kAcceptor, challenge.nonce, hello.nonce, hello.proved())));
  return {std::move(socket), connection};
}

/// A stream of a friend, which has said its hello. `change` may alter the hello before it is proved.
base::Fd say_hello(SocketNetwork& net, const std::function<void(Hello&)>& change) {
  const Address address = address_of(net.handle());
  base::Fd socket = connect_to(address);
  const Challenge challenge = challenge_of(net, socket);
  Hello hello = answer(challenge, address.secret);
  change(hello);
  hello.proof =
      test::required(sdk::prove(address.secret, sdk::Side::kConnector, challenge.nonce, hello.nonce, hello.proved()));
  write_whole(socket, hello);
  return socket;
}

TEST(Handshake, AFriendWithAnotherNumberOfStreamsIsTurnedAway) {
  SocketNetwork net(kOneStream);
  const base::Fd socket = say_hello(net, [](Hello& hello) {
    hello.streams = 2;
    hello.stream = 1;
  });
  accept_until(net, [&](void*) { return is_closed(socket); });
}

TEST(Handshake, AStreamThatConnectsTwiceIsTurnedAway) {
  const SocketNetwork::Settings two_streams = {{"settings.net.socket.streams", "2"}};
  SocketNetwork net(two_streams);
  const sdk::Nonce connection = test::required(sdk::make_nonce());
  const auto first_of_two = [&](Hello& hello) {
    hello.connection = connection;
    hello.streams = 2;
    hello.stream = 0;
  };
  const base::Fd first = say_hello(net, first_of_two);
  const base::Fd again = say_hello(net, first_of_two);
  accept_until(net, [&](void* made) {
    EXPECT_EQ(made, nullptr);
    return is_closed(again);
  });
  EXPECT_FALSE(is_closed(first));
}

int32_t test_until_done(SocketNetwork& net, void* request) {
  int32_t code = TUTTI_OK, done = 0;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_OK && done == 0 && Clock::now() < end) code = net.ops().test(request, &done, nullptr);
  return code;
}

TEST(Handshake, AFriendByHandIsLetInAndItsMessageArrives) {
  SocketNetwork net(kOneStream);
  const auto [socket, connection] = befriend(net);
  std::vector<uint8_t> out(5);
  void* request = net.recv(connection, out, 3);
  write_whole(socket, Header{5, 3, 0});
  write_whole(socket, std::array<uint8_t, 5>{1, 2, 3, 4, 5});
  EXPECT_EQ(test_until_done(net, request), TUTTI_OK);
  EXPECT_EQ(out, (std::vector<uint8_t>{1, 2, 3, 4, 5}));
}

/// No sender of ours stripes a message that is shorter than the number of streams.
TEST(Handshake, AStripedMessageOfFewBytesArrives) {
  const SocketNetwork::Settings two_streams = {{"settings.net.socket.streams", "2"}};
  SocketNetwork net(two_streams);
  const sdk::Nonce number = test::required(sdk::make_nonce());
  std::vector<base::Fd> sockets;
  void* connection = nullptr;
  for (uint32_t stream = 0; stream < 2; ++stream) {
    sockets.push_back(say_hello(net, [&](Hello& hello) {
      hello.connection = number;
      hello.streams = 2;
      hello.stream = stream;
    }));
  }
  connection = accept_until(net, [](void* made) { return made != nullptr; });
  net.owns(connection);
  for (const base::Fd& socket : sockets) {
    sdk::Proof proof;
    ASSERT_TRUE(read_whole(socket, proof));
  }
  std::vector<uint8_t> out(1);
  void* request = net.recv(connection, out, 3);
  write_whole(sockets.front(), Header{1, 3, net_socket::kStriped});
  write_whole(sockets.front(), uint8_t{77});
  EXPECT_EQ(test_until_done(net, request), TUTTI_OK);
  EXPECT_EQ(out.front(), 77);
}

TEST(Handshake, DamagedHeadersEndTheConnection) {
  for (const Header& header : {Header{uint64_t{1} << 41, 3, 0}, Header{5, 3, 2}}) {
    SocketNetwork net(kOneStream);
    const auto [socket, connection] = befriend(net);
    std::vector<uint8_t> out(5);
    void* request = net.recv(connection, out, 3);
    write_whole(socket, header);
    EXPECT_EQ(test_until_done(net, request), TUTTI_REMOTE);
    EXPECT_THAT(plugin::take_failure_text(), HasSubstr("damaged header"));
  }
}

TEST(Handshake, AMoveToAnUnknownConnectionEndsTheConnection) {
  SocketNetwork net(kOneStream);
  net_socket::Id greatest;
  greatest.fill(std::byte{0xff});  // its connections may move
  const auto [socket, connection] = befriend(net, greatest);
  std::vector<uint8_t> out(5);
  void* request = net.recv(connection, out, 3);
  write_whole(socket, Header{0, 0, net_socket::kMoves});
  write_whole(socket, greatest);
  EXPECT_EQ(test_until_done(net, request), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("over a connection that is closed"));
}

TEST(Handshake, AnEndInTheMiddleOfAMessageFails) {
  SocketNetwork net(kOneStream);
  auto [socket, connection] = befriend(net);
  std::vector<uint8_t> out(5);
  void* request = net.recv(connection, out, 3);
  write_whole(socket, Header{5, 3, 0});
  write_whole(socket, uint8_t{1});
  socket.reset();
  EXPECT_EQ(test_until_done(net, request), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("closed it"));
}

TEST(Handshake, WithoutTheSecretNobodyIsLetIn) {
  SocketNetwork net(kOneStream);
  const Address address = address_of(net.handle());
  const base::Fd recorded_on = connect_to(address);
  const Challenge first = challenge_of(net, recorded_on);
  const Hello recorded = answer(first, address.secret);
  const auto refused = [&](auto&& change) {
    const base::Fd socket = connect_to(address);
    Hello hello = answer(challenge_of(net, socket), address.secret);
    change(hello);
    write_whole(socket, hello);
    EXPECT_EQ(accept_until(net, [&](void* made) { return made != nullptr || is_closed(socket); }), nullptr);
  };
  refused([](Hello& hello) { hello.proof[31] ^= std::byte{1}; });
  refused([](Hello& hello) { hello.stream = 1; });
  refused([](Hello& hello) { hello.connection[0] ^= std::byte{1}; });  // not as proved
  refused([](Hello& hello) { hello.magic ^= 1; });
  refused([&](Hello& hello) { hello = recorded; });  // it answers a different challenge
  const base::Fd socket = connect_to(address);
  net_socket::Secret guess = address.secret;
  guess[0] ^= std::byte{1};
  write_whole(socket, answer(challenge_of(net, socket), guess));
  EXPECT_EQ(accept_until(net, [&](void* made) { return made != nullptr || is_closed(socket); }), nullptr);
}

/// A listener made by hand, on a thread, and the plugin as the connecting side.
class HandmadeListener {
 public:
  explicit HandmadeListener(std::function<void(HandmadeListener&)> serve) {
    base::SocketAddress any = test::required(base::SocketAddress::parse("127.0.0.1:0"));
    listener_ = test::required(base::listen_on(any));
    fcntl(listener_.get(), F_SETFL, 0);
    const timeval limit{kLimit.count(), 0};
    setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    address_.family = AF_INET;
    address_.port = base::local_address(listener_).port();
    address_.streams = 1;
    const std::array<uint8_t, 4> loopback = {127, 0, 0, 1};
    std::copy(loopback.begin(), loopback.end(), address_.ip.begin());
    address_.secret = test::required(sdk::make_nonce());
    thread_ = std::thread([this, serve = std::move(serve)] { serve(*this); });
  }
  ~HandmadeListener() { end(); }
  /// Waits until `serve` has ended.
  void end() {
    if (thread_.joinable()) thread_.join();
  }

  base::Fd take() const {
    base::Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(socket.valid());
    const timeval limit{kLimit.count(), 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return socket;
  }
  /// Sends a challenge, reads the hello, and answers with the proof of `secret`. Returns the hello.
  static Hello greet(const base::Fd& socket, const net_socket::Secret& secret) {
    const Challenge challenge{net_socket::kMagic, test::required(sdk::make_nonce())};
    write_whole(socket, challenge);
    Hello hello;
    EXPECT_TRUE(read_whole(socket, hello));
    write_whole(socket,
                test::required(sdk::prove(secret, sdk::Side::kAcceptor, challenge.nonce, hello.nonce, hello.proved())));
    return hello;
  }
  const Address& address() const { return address_; }
  /// Lets the plugin connect; its code.
  int32_t let_connect(SocketNetwork& net) {
    tutti_net_handle handle{};
    std::memcpy(handle.bytes, &address_, sizeof address_);
    void *state = nullptr, *connection = nullptr;
    int32_t code = TUTTI_AGAIN;
    const auto end = Clock::now() + kLimit;
    while (code == TUTTI_AGAIN && Clock::now() < end)
      code = net.ops().connect(net.context(), 0, &handle, &state, &connection);
    if (connection != nullptr) net.owns(connection);
    return code;
  }

 private:
  base::Fd listener_;
  Address address_;
  std::thread thread_;
};

TEST(Handshake, TheSecretDoesNotCrossTheConnection) {
  SocketNetwork net(kOneStream);
  std::array<std::byte, sizeof(Hello)> said{};
  HandmadeListener listener([&](HandmadeListener& self) {
    const base::Fd socket = self.take();
    const Hello hello = HandmadeListener::greet(socket, self.address().secret);
    std::memcpy(said.data(), &hello, sizeof hello);
  });
  EXPECT_EQ(listener.let_connect(net), TUTTI_OK);
  listener.end();
  const auto& secret = listener.address().secret;
  EXPECT_EQ(std::search(said.begin(), said.end(), secret.begin(), secret.begin() + 4), said.end());
}

TEST(Handshake, AnImpostorOnThePortIsNamed) {
  SocketNetwork net(kOneStream);
  HandmadeListener listener([&](HandmadeListener& self) {
    const base::Fd socket = self.take();
    HandmadeListener::greet(socket, net_socket::Secret{});
  });
  EXPECT_EQ(listener.let_connect(net), TUTTI_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("cannot prove"));
}

TEST(Handshake, AnotherProtocolOnThePortIsNamed) {
  SocketNetwork net(kOneStream);
  HandmadeListener listener([&](HandmadeListener& self) {
    const base::Fd socket = self.take();
    write_whole(socket, std::array<char, 24>{"HTTP/1.1 400 Bad Reques"});
    uint8_t byte = 0;
    ::recv(socket.get(), &byte, 1, 0);  // until the plugin closes the connection
  });
  EXPECT_EQ(listener.let_connect(net), TUTTI_VERSION_MISMATCH);
}

TEST(Handshake, AConnectionThatBreaksBeforeItStandsIsMadeAgain) {
  SocketNetwork net(kOneStream);
  HandmadeListener listener([&](HandmadeListener& self) {
    self.take().reset();
    {
      const base::Fd socket = self.take();
      write_whole(socket, Challenge{});
      Hello hello;
      EXPECT_TRUE(read_whole(socket, hello));
    }
    const base::Fd socket = self.take();
    HandmadeListener::greet(socket, self.address().secret);
  });
  EXPECT_EQ(listener.let_connect(net), TUTTI_OK);
}

TEST(Handshake, AClosedPortIsTold) {
  SocketNetwork net(kOneStream);
  Address address;
  {
    HandmadeListener listener([](HandmadeListener&) {});
    address = listener.address();
  }
  tutti_net_handle handle{};
  std::memcpy(handle.bytes, &address, sizeof address);
  void *state = nullptr, *connection = nullptr;
  int32_t code = TUTTI_AGAIN;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_AGAIN && Clock::now() < end)
    code = net.ops().connect(net.context(), 0, &handle, &state, &connection);
  EXPECT_EQ(code, TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(),
              HasSubstr("refuses connections; the process there may have ended. Each host has a loopback of its own"));
}

/// A network that cannot be reached, not a port that is closed: the route may come back within the limit.
TEST(Handshake, AnAddressWithoutARouteIsGivenUpAfterTheLimit) {
  SocketNetwork net({{"settings.net.socket.streams", "1"}, {"timeouts.peer_loss", "1s"}});
  Address address = address_of(net.handle());
  const std::array<uint8_t, 4> broadcast = {127, 255, 255, 255};  // TCP reaches no such address
  std::copy(broadcast.begin(), broadcast.end(), address.ip.begin());
  tutti_net_handle handle{};
  std::memcpy(handle.bytes, &address, sizeof address);
  void *state = nullptr, *connection = nullptr;
  int32_t code = TUTTI_AGAIN;
  const auto start = Clock::now();
  while (code == TUTTI_AGAIN && Clock::now() < start + kLimit)
    code = net.ops().connect(net.context(), 0, &handle, &state, &connection);
  EXPECT_EQ(code, TUTTI_REMOTE);
  EXPECT_GE(Clock::now() - start, std::chrono::seconds(1));
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("127.255.255.255"));
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(Strangers, TheirNumberIsLimitedAndFriendsGetThrough) {
  SocketNetwork net;
  const Address address = address_of(net.handle());
  const size_t before = open_descriptors();
  std::vector<base::Fd> strangers;
  for (int i = 0; i < 400; ++i) strangers.push_back(connect_to(address));
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < end) net.refuse_strays(1);
  EXPECT_LE(open_descriptors(), before + strangers.size() + 130);
  const auto [sender, receiver] = net.connect();
  const auto data = random_bytes(1000);
  std::vector<uint8_t> out(1000);
  ASSERT_TRUE(net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}));
  EXPECT_EQ(out, data);
}

}  // namespace
}  // namespace tutti
