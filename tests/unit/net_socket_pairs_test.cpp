// SPDX-License-Identifier: Apache-2.0
// Connections of net-socket in both directions between two contexts, which share sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "net-socket/pairs.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/socket_network.h"

namespace tutti {
namespace {

using test::kLimit;
using test::random_bytes;
using Net = test::SocketNetwork;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

struct Link {
  Net& from;
  Net& to;
  void* sender = nullptr;
  void* receiver = nullptr;

  Link(Net& source, Net& target) : from(source), to(target) {
    void *connecting = nullptr, *accepting = nullptr;
    const auto end = Clock::now() + kLimit;
    while ((sender == nullptr || receiver == nullptr) && Clock::now() < end) {
      if (sender == nullptr) from.ops().connect(from.context(), 0, &to.handle(), &connecting, &sender);
      if (receiver == nullptr) to.accept(&accepting, &receiver);
    }
    EXPECT_NE(sender, nullptr);
    EXPECT_NE(receiver, nullptr);
    from.owns(sender);
    to.owns(receiver);
  }
  bool carry(size_t bytes) {
    const auto data = random_bytes(bytes);
    std::vector<uint8_t> out(bytes);
    return from.finish({to.recv(receiver, out, 0), from.send(sender, data, 0)}) && out == data;
  }
};

/// Bytes that each TCP socket of this process has received, by its own and the other port.
std::map<std::pair<uint16_t, uint16_t>, uint64_t> received() {
  std::map<std::pair<uint16_t, uint16_t>, uint64_t> all;
  for (const test::TcpSocket& socket : test::tcp_sockets()) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(socket.fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    all[{socket.here, socket.there}] = info.tcpi_bytes_received;
  }
  return all;
}

/// Ports of the sockets that receive while messages go both ways.
std::vector<std::pair<uint16_t, uint16_t>> in_use(Link& forth, Link& back) {
  const auto before = received();
  EXPECT_TRUE(forth.carry(100));
  EXPECT_TRUE(back.carry(100));
  std::vector<std::pair<uint16_t, uint16_t>> used;
  for (const auto& [ports, bytes] : received()) {
    const auto old = before.find(ports);
    if (old != before.end() && bytes > old->second) used.push_back(ports);
  }
  return used;
}

/// The first messages of both directions, after which each connection that may move has moved.
void begin(Link& forth, Link& back) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(forth.carry(10));
    EXPECT_TRUE(back.carry(10));
  }
}

TEST(SocketPairs, AClosedConnectionTakesItsOffersBack) {
  net_socket::Pairs pairs;
  const net_socket::Sockets sockets = {std::make_shared<net_socket::DataSocket>()};
  const net_socket::Id closed{std::byte{1}}, open{std::byte{2}};
  for (const net_socket::Id& id : {closed, open}) {
    pairs.offer_sent(id, sockets);
    pairs.offer_received({id, 0, "ends"}, id, sockets);
  }
  pairs.forget(closed);
  EXPECT_TRUE(pairs.find_sent(closed).empty());
  EXPECT_TRUE(pairs.take_received({closed, 0, "ends"}).sockets.empty());
  EXPECT_EQ(pairs.find_sent(open), sockets);
  EXPECT_EQ(pairs.take_received({open, 0, "ends"}).sockets, sockets);
}

TEST(SocketPairs, BothDirectionsUseOneSocket) {
  Net a, b;
  Link forth(a, b), back(b, a);
  begin(forth, back);
  const auto used = in_use(forth, back);
  ASSERT_EQ(used.size(), 2u);
  EXPECT_EQ(used[0].first, used[1].second);
  EXPECT_EQ(used[0].second, used[1].first);
}

/// Segments that are not acknowledged, of the socket that has sent most bytes.
uint32_t unacknowledged() {
  tcp_info most{};
  for (const test::TcpSocket& socket : test::tcp_sockets()) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(socket.fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    if (info.tcpi_bytes_sent > most.tcpi_bytes_sent) most = info;
  }
  return most.tcpi_unacked;
}

/// Without the plugin's request, Linux acknowledges the end of some messages 40 ms later: the socket answers requests.
TEST(SocketPairs, TheEndOfALongMessageIsAcknowledgedEarly) {
  Net a, b;
  Link forth(a, b), back(b, a);
  begin(forth, back);
  std::vector<uint8_t> next(10);
  for (int i = 0; i < 20; ++i) {
    begin(forth, back);
    EXPECT_TRUE(forth.carry(100'000));
    void* const open = b.recv(forth.receiver, next, 0);
    for (int look = 0; look < 20; ++look) {
      int32_t done = 0;
      EXPECT_EQ(b.ops().test(open, &done, nullptr), TUTTI_OK);
      EXPECT_EQ(done, 0);
    }
    EXPECT_EQ(unacknowledged(), 0u);
    EXPECT_TRUE(a.finish({open, a.send(forth.sender, random_bytes(10), 0)}));
  }
}

TEST(SocketPairs, EachConnectionHasItsOwnPair) {
  Net a, b;
  Link forth(a, b), second_forth(a, b), back(b, a), second_back(b, a);
  begin(second_forth, second_back);
  begin(forth, back);
  const auto first = in_use(forth, back), second = in_use(second_forth, second_back);
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_NE(first, second);
}

TEST(SocketPairs, WithTlsThereAreNoPairs) {
  const Net::Settings tls{{"settings.net.socket.tls", "on"}};
  Net a(tls), b(tls);
  Link forth(a, b), back(b, a);
  begin(forth, back);
  const auto used = in_use(forth, back);
  ASSERT_EQ(used.size(), 2u);
  EXPECT_NE(used[0].first, used[1].second);
}

/// Sends or receives messages of the sizes with several under way; they contain a sequence of bytes from `seed`.
void run(Net& net, void* connection, bool sends, const std::vector<size_t>& sizes, uint8_t seed) {
  constexpr size_t kUnderWay = 8;
  std::vector<std::vector<uint8_t>> buffers(sizes.size());
  std::vector<void*> requests(sizes.size());
  const auto fill = [&](std::vector<uint8_t>& buffer, size_t message) {
    for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = static_cast<uint8_t>(seed + message * 7 + i);
  };
  size_t posted = 0, completed = 0;
  const auto end = Clock::now() + 2 * kLimit;
  while (completed < sizes.size() && Clock::now() < end) {
    while (posted < sizes.size() && posted - completed < kUnderWay) {
      buffers[posted].assign(sizes[posted], 0);
      if (sends) fill(buffers[posted], posted);
      requests[posted] = sends ? net.send(connection, buffers[posted], 0) : net.recv(connection, buffers[posted], 0);
      if (requests[posted] == nullptr) break;
      ++posted;
    }
    for (int32_t done = 1; completed < posted && done != 0;) {
      done = 0;
      ASSERT_EQ(net.ops().test(requests[completed], &done, nullptr), TUTTI_OK) << plugin::take_failure_text();
      if (done == 0) break;
      std::vector<uint8_t> expected(sizes[completed]);
      fill(expected, completed);
      ASSERT_EQ(buffers[completed], expected) << "message " << completed;
      ++completed;
    }
  }
  EXPECT_EQ(completed, sizes.size());
}

TEST(SocketPairs, FourThreadsMoveWhileDataGoBothWays) {
  std::mt19937 random(std::random_device{}());
  for (const char* streams : {"1", "3"}) {
    const Net::Settings settings{{"settings.net.socket.streams", streams}, {"settings.net.socket.stripe_min", "1KiB"}};
    Net a(settings), b(settings);
    Link forth(a, b), back(b, a);
    std::vector<size_t> sizes(400);
    for (size_t& size : sizes) size = random() % 4 == 0 ? random() % 200000 : random() % 2000;
    std::vector<std::thread> threads;
    threads.emplace_back([&] { run(a, forth.sender, true, sizes, 1); });
    threads.emplace_back([&] { run(b, forth.receiver, false, sizes, 1); });
    threads.emplace_back([&] { run(b, back.sender, true, sizes, 2); });
    threads.emplace_back([&] { run(a, back.receiver, false, sizes, 2); });
    for (std::thread& thread : threads) thread.join();
    const auto used = in_use(forth, back);
    ASSERT_EQ(used.size(), 2u) << streams << " streams";
    EXPECT_EQ(used[0].first, used[1].second);
  }
}

/// The code of a request that ends; TUTTI_AGAIN if it does not.
int32_t code_of(Net& net, void* request) {
  const auto end = Clock::now() + kLimit;
  while (Clock::now() < end) {
    int32_t done = 0;
    const int32_t code = net.ops().test(request, &done, nullptr);
    if (code != TUTTI_OK || done != 0) return code;
  }
  return TUTTI_AGAIN;
}

TEST(SocketPairs, AClosedSenderLeavesTheOtherDirection) {
  for (const bool swapped : {false, true}) {  // so that each side is the one that moves, whatever the ids are
    Net a, b;
    Link forth(a, b), back(b, a);
    begin(forth, back);
    Link& closed = swapped ? back : forth;
    Link& stays = swapped ? forth : back;
    const auto data = random_bytes(50000);
    std::vector<uint8_t> out(data.size()), never(1);
    void* const whole = closed.to.recv(closed.receiver, out, 0);
    void* const none = closed.to.recv(closed.receiver, never, 0);
    ASSERT_TRUE(closed.from.finish({closed.from.send(closed.sender, data, 0)}));
    closed.from.close(closed.sender);
    EXPECT_EQ(code_of(closed.to, whole), TUTTI_OK);
    EXPECT_EQ(out, data);
    EXPECT_EQ(code_of(closed.to, none), TUTTI_REMOTE);
    EXPECT_THAT(plugin::take_failure_text(), HasSubstr("closed it"));
    EXPECT_TRUE(stays.carry(100000));
  }
}

TEST(SocketPairs, AClosedReceiverFailsItsSender) {
  for (const bool swapped : {false, true}) {
    Net a, b;
    Link forth(a, b), back(b, a);
    begin(forth, back);
    Link& closed = swapped ? back : forth;
    closed.to.close(closed.receiver);
    const auto data = random_bytes(1000);
    int32_t code = TUTTI_OK;
    const auto end = Clock::now() + kLimit;
    while (code == TUTTI_OK && Clock::now() < end) {
      void* request = nullptr;
      code = closed.from.ops().send(closed.sender, data.data(), data.size(), 0, nullptr, &request);
      if (code == TUTTI_OK && request != nullptr) code = code_of(closed.from, request);
    }
    EXPECT_EQ(code, TUTTI_REMOTE);
  }
}

TEST(SocketPairs, UnreadDataDoNotEndTheOtherDirection) {
  for (const bool swapped : {false, true}) {
    Net a, b;
    Link forth(a, b), back(b, a);
    begin(forth, back);
    Link& unread = swapped ? back : forth;
    Link& read = swapped ? forth : back;
    const auto data = random_bytes(50000);
    ASSERT_TRUE(unread.from.finish({unread.from.send(unread.sender, random_bytes(1000), 0)}));
    std::vector<uint8_t> out(data.size());
    void* const receive = read.to.recv(read.receiver, out, 0);
    ASSERT_TRUE(read.from.finish({read.from.send(read.sender, data, 0)}));
    read.from.close(read.sender);
    unread.to.close(unread.receiver);  // the last user of the sockets, with data that it has not read
    EXPECT_EQ(code_of(read.to, receive), TUTTI_OK) << plugin::take_failure_text();
    EXPECT_EQ(out, data);
  }
}

}  // namespace
}  // namespace tutti
