// SPDX-License-Identifier: Apache-2.0
// The socket network through its table alone, as the host calls it. Sender and receiver live in one process; both ends
// are pushed on by hand.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "base/fd.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/socket_network.h"

namespace tutti {
namespace {

using test::kLimit;
using test::random_bytes;
using Net = test::SocketNetwork;

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// With and without TLS.
class Socket : public testing::TestWithParam<const char*> {
 protected:
  static Net::Settings with_tls(Net::Settings settings = {}) {
    settings.emplace_back("settings.net.socket.tls", GetParam());
    return settings;
  }
  /// A connection whose handshake is over: until then a send waits for the receiver to make progress.
  static std::pair<void*, void*> connected(Net& net) {
    const auto [sender, receiver] = net.connect();
    std::vector<uint8_t> none;
    EXPECT_TRUE(net.finish({net.recv(receiver, none, 9), net.send(sender, none, 9)}));
    return {sender, receiver};
  }
};
INSTANTIATE_TEST_SUITE_P(Tls, Socket, testing::Values("off", "on", "user"));

TEST_P(Socket, EverySizeArrivesWhole) {
  for (const char* streams : {"1", "2", "5"}) {
    Net net(with_tls({{"settings.net.socket.streams", streams}}));
    const auto [sender, receiver] = net.connect();
    for (const size_t size : {0u, 1u, 63u, 64u, 4097u, 65535u, 65536u, 65537u, 1000003u, 16u << 20}) {
      const auto data = random_bytes(size);
      std::vector<uint8_t> out(size + 1, 0xa5);
      std::vector<uint8_t> buffer(size, 0xa5);
      ASSERT_TRUE(net.finish({net.recv(receiver, buffer, 7), net.send(sender, data, 7)}))
          << size << " bytes, " << streams << " streams";
      EXPECT_EQ(buffer, data);
    }
  }
}

TEST_P(Socket, ManyInFlightArriveInOrder) {
  Net net(with_tls({{"settings.net.socket.stripe_min", "1KiB"}, {"settings.net.socket.streams", "3"}}));
  const auto [sender, receiver] = net.connect();
  std::vector<std::vector<uint8_t>> data, out;
  for (uint32_t i = 0; i < TUTTI_NET_MIN_REQUESTS; ++i) {
    data.push_back(random_bytes(i * 777));
    out.emplace_back(data.back().size(), uint8_t{0});
  }
  std::vector<void*> requests;
  for (uint32_t i = 0; i < TUTTI_NET_MIN_REQUESTS; ++i) {
    requests.push_back(net.send(sender, data[i], 0));
    requests.push_back(net.recv(receiver, out[i], 0));
    ASSERT_NE(requests[requests.size() - 1], nullptr);
    ASSERT_NE(requests[requests.size() - 2], nullptr);
  }
  ASSERT_TRUE(net.finish(requests));
  EXPECT_EQ(out, data);
}

TEST_P(Socket, TagsAndGroupsMatch) {
  Net net(with_tls());
  const auto [sender, receiver] = connected(net);
  test::expect_groups_match_tags(net, sender, receiver);
}

TEST_P(Socket, TooLongAMessageFailsItsReceive) {
  Net net(with_tls());
  const auto [sender, receiver] = connected(net);
  const auto data = random_bytes(100);
  std::vector<uint8_t> small(50);
  void* receive = net.recv(receiver, small, 0);
  net.send(sender, data, 0);
  int32_t code = TUTTI_OK, done = 0;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_OK && done == 0 && Clock::now() < end) code = net.ops().test(receive, &done, nullptr);
  EXPECT_EQ(code, TUTTI_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), testing::AllOf(HasSubstr("100 bytes"), HasSubstr("50 bytes")));
}

TEST_P(Socket, WhatWasSentBeforeTheCloseArrives) {
  Net net(with_tls({{"settings.net.socket.streams", "2"}}));
  const auto [sender, receiver] = net.connect();
  const auto data = random_bytes(300000);
  std::vector<uint8_t> out(data.size()), never(10);
  void* first = net.recv(receiver, out, 0);
  void* second = net.recv(receiver, never, 0);
  ASSERT_TRUE(net.finish({first, net.send(sender, data, 0)}));
  EXPECT_EQ(out, data);
  net.close(sender);
  int32_t code = TUTTI_OK, done = 0;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_OK && Clock::now() < end) code = net.ops().test(second, &done, nullptr);
  EXPECT_EQ(code, TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), testing::AllOf(HasSubstr("127.0.0.1"), HasSubstr("closed it")));
}

TEST_P(Socket, StrangersChangeNothing) {
  Net net(with_tls());
  std::vector<base::Fd> strangers;
  uint16_t family = 0, port = 0;
  std::memcpy(&family, net.handle().bytes, 2);
  std::memcpy(&port, net.handle().bytes + 2, 2);
  ASSERT_EQ(family, AF_INET);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 20; ++i) {
    base::Fd& stranger = strangers.emplace_back(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    const auto garbage = random_bytes(static_cast<size_t>(i) * 11);
    ASSERT_GE(send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    if (i % 3 == 0) stranger.reset();
  }
  net.refuse_strays(50);
  const auto [sender, receiver] = net.connect();
  const auto data = random_bytes(1000);
  std::vector<uint8_t> out(1000);
  ASSERT_TRUE(net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}));
  EXPECT_EQ(out, data);
  // A handle of foreign origin is refused by name.
  tutti_net_handle foreign{};
  void *state = nullptr, *connection = nullptr;
  EXPECT_EQ(net.ops().connect(net.context(), 0, &foreign, &state, &connection), TUTTI_INVALID_ARGUMENT);
}

TEST_P(Socket, SleepersAreWoken) {
  Net net(with_tls());
  const auto [sender, receiver] = net.connect();
  int32_t fd = -1;
  ASSERT_EQ(net.ops().event_fd(net.context(), &fd), TUTTI_OK);
  constexpr int kMessages = 500;
  const auto bytes_of = [](int message) { return size_t{64} + static_cast<size_t>(message % 7) * 9000; };
  std::thread sending([&, from = sender] {
    for (int i = 0; i < kMessages; ++i) {
      const std::vector<uint8_t> data(bytes_of(i), static_cast<uint8_t>(i));
      ASSERT_TRUE(net.finish({net.send(from, data, 0)}));
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    std::vector<uint8_t> out(bytes_of(i));
    void* request = net.recv(receiver, out, 0);
    int32_t done = 0;
    for (;;) {
      ASSERT_EQ(net.ops().test(request, &done, nullptr), TUTTI_OK);
      if (done != 0) break;
      if (net.ops().arm(net.context()) == TUTTI_AGAIN) continue;
      pollfd ready{fd, POLLIN, 0};
      ASSERT_EQ(poll(&ready, 1, 20000), 1) << "a wake-up was lost before message " << i;
    }
    EXPECT_EQ(out, std::vector<uint8_t>(bytes_of(i), static_cast<uint8_t>(i)));
  }
  sending.join();
}

/// How many TCP sockets of this process have each congestion control. Listeners do not count.
std::map<std::string, int> congestion_of_streams() {
  std::map<std::string, int> streams;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_storage peer{};
    socklen_t peer_size = sizeof peer;
    char name[16] = {};
    socklen_t size = sizeof name;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) continue;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0) ++streams[name];
  }
  return streams;
}

/// The congestion controls that every process may use.
std::vector<std::string> allowed_congestion() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
  return {std::istream_iterator<std::string>(file), {}};
}

TEST(SocketCongestion, IsTheSettingOnBothEnds) {
  const std::vector<std::string> allowed = allowed_congestion();
  if (allowed.empty()) GTEST_SKIP() << "this system does not tell what it allows";
  for (const std::string& name : allowed) {
    Net net({{"settings.net.socket.congestion", name}});
    const auto [sender, receiver] = net.connect();
    const auto data = random_bytes(200000);
    std::vector<uint8_t> out(data.size());
    ASSERT_TRUE(net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}));
    EXPECT_EQ(out, data);
    EXPECT_EQ(congestion_of_streams(), (std::map<std::string, int>{{name, 2}}));
  }
}

TEST(SocketCongestion, RefusesUnknownNames) {
  config::LoadOptions options;
  options.site_file = "";
  options.settings = {{"settings.net.socket.interface", "[=lo]"}, {"settings.net.socket.congestion", "cubik"}};
  auto config = test::required(config::Config::load(options));
  const auto image = test::required(
      plugin::Image::load(plugin::Kind::kNetwork, "socket", TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-net-socket.so"));
  const auto opened = plugin::Plugin::open(image, config);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::kConfig);
  EXPECT_THAT(opened.status().text(),
              testing::AllOf(HasSubstr("settings.net.socket.congestion is 'cubik'"), HasSubstr("it allows: reno")));
}

}  // namespace
}  // namespace tutti
