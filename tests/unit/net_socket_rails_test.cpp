// SPDX-License-Identifier: Apache-2.0
// Connections of net-socket with rails, whose streams end at random times. All rails lead over the loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "config/config.h"
#include "log/log.h"
#include "net-socket/wire.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/required.h"
#include "unit/socket_network.h"

namespace tutti {
namespace {

using test::kLimit;
using test::random_bytes;
using Net = test::SocketNetwork;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

net_socket::Address address_in(const tutti_net_handle& handle) {
  net_socket::Address address;
  std::memcpy(&address, handle.bytes, sizeof address);
  return address;
}

/// The listening port of a rail.
uint16_t& port_of(net_socket::Address& address, size_t rail) {
  return rail == 0 ? address.port : address.further[rail - 1].port;
}

/// Both ends of each rail, the end of the sender first.
std::vector<std::pair<int, int>> rails_of(Net& net, size_t rails) {
  std::vector<std::pair<int, int>> out;
  const auto all = test::tcp_sockets();
  net_socket::Address address = address_in(net.handle());
  for (size_t i = 0; i < rails; ++i) {
    const uint16_t port = port_of(address, i);
    for (const test::TcpSocket& sender : all) {
      if (sender.there != port) continue;
      for (const test::TcpSocket& receiver : all) {
        if (receiver.here == port && receiver.there == sender.here) out.emplace_back(sender.fd, receiver.fd);
      }
    }
  }
  return out;
}

class Rails : public testing::Test {
 protected:
  void SetUp() override {
    file_ = testing::TempDir() + "tutti-rails-" + std::to_string(getpid());
    ASSERT_TRUE(log::configure(log::Level::kWarn, file_).ok());
    RecordProperty("seed", std::to_string(seed_));
    std::printf("seed %u\n", seed_);
  }
  void TearDown() override {
    ASSERT_TRUE(log::configure(log::Level::kWarn, "").ok());
    std::filesystem::remove(file_);
  }
  /// Lines of the log that contain the text.
  std::vector<std::string> logged(const std::string& text) const {
    std::ifstream in(file_);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) {
      if (line.find(text) != std::string::npos) out.push_back(line);
    }
    return out;
  }
  static Net::Settings with(size_t rails, Net::Settings settings = {}) {
    settings.emplace_back("settings.net.socket.rails", std::to_string(rails));
    return settings;
  }

  const uint32_t seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
  std::string file_;
};

int32_t code_of(Net& net, void* request) {
  int32_t code = TUTTI_OK, done = 0;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_OK && done == 0 && Clock::now() < end) code = net.ops().test(request, &done, nullptr);
  EXPECT_TRUE(done != 0 || code != TUTTI_OK) << "the request does not end";
  return code;
}

/// Sends or receives messages of the sizes with several under way. Each message begins with its number.
void run(Net& net, void* connection, bool sends, const std::vector<size_t>& sizes, uint32_t seed,
         std::atomic<size_t>& completed) {
  constexpr size_t kUnderWay = 16;
  std::vector<std::vector<uint8_t>> buffers(sizes.size());
  std::vector<void*> requests(sizes.size());
  const auto fill = [&](std::vector<uint8_t>& buffer, size_t message) {
    std::minstd_rand bytes(seed + static_cast<uint32_t>(message));
    for (uint8_t& byte : buffer) byte = static_cast<uint8_t>(bytes() >> 8);
  };
  size_t posted = 0;
  const auto end = Clock::now() + 2 * kLimit;
  while (completed < sizes.size() && Clock::now() < end) {
    while (posted < sizes.size() && posted - completed < kUnderWay) {
      buffers[posted].assign(sizes[posted], 0xa5);
      if (sends) fill(buffers[posted], posted);
      requests[posted] = sends ? net.send(connection, buffers[posted], 0) : net.recv(connection, buffers[posted], 0);
      if (requests[posted] == nullptr) break;
      ++posted;
    }
    while (completed < posted) {
      int32_t done = 0;
      uint64_t bytes = 0;
      ASSERT_EQ(net.ops().test(requests[completed], &done, &bytes), TUTTI_OK) << plugin::take_failure_text();
      if (done == 0) break;
      if (sends) {
        buffers[completed].assign(sizes[completed], 0x5a);  // the send is complete: its buffer is free
      } else {
        std::vector<uint8_t> expected(sizes[completed]);
        fill(expected, completed);
        ASSERT_EQ(bytes, expected.size());
        ASSERT_EQ(buffers[completed], expected) << "message " << completed;
      }
      ++completed;
    }
  }
  EXPECT_EQ(completed, sizes.size());
}

/// Posts the next receive, and tests it until the sender has completed `count` messages: if a rail takes the
/// acknowledgement of a message with it, the sender sends the message again, and the receiver must acknowledge it
/// again.
void await_sender(Net& net, void* connection, std::vector<uint8_t>& buffer, const std::atomic<size_t>& sent,
                  size_t count, void*& next) {
  next = net.recv(connection, buffer, 0);
  const auto end = Clock::now() + kLimit;
  while (sent < count && Clock::now() < end) {
    int32_t done = 0;
    ASSERT_EQ(net.ops().test(next, &done, nullptr), TUTTI_OK) << plugin::take_failure_text();
    ASSERT_EQ(done, 0) << "a message came twice";
  }
}

TEST_F(Rails, EverySizeArrivesWhole) {
  for (const size_t rails : {2u, 3u, 4u}) {
    Net net(with(rails));
    const auto [sender, receiver] = net.connect();
    ASSERT_EQ(rails_of(net, rails).size(), rails);
    for (const size_t size : {0u, 1u, 63u, 64u, 4097u, 65535u, 65536u, 65537u, 1000003u, 16u << 20}) {
      const auto data = random_bytes(size);
      std::vector<uint8_t> buffer(size, 0xa5);
      ASSERT_TRUE(net.finish({net.recv(receiver, buffer, 7), net.send(sender, data, 7)})) << size << " bytes";
      EXPECT_EQ(buffer, data);
    }
  }
  EXPECT_TRUE(logged("is lost").empty());
}

TEST_F(Rails, LargeMessagesUseEachRail) {
  Net net(with(3, {{"settings.net.socket.stripe_min", "3000"}}));
  const auto [sender, receiver] = net.connect();
  const auto rails = rails_of(net, 3);
  ASSERT_EQ(rails.size(), 3u);
  const auto data = random_bytes(300000);
  std::vector<uint8_t> buffer(data.size());
  void* const receive = net.recv(receiver, buffer, 0);
  void* const send = net.send(sender, data, 0);
  for (const auto& [from, to] : rails) {  // before the receiver reads
    std::vector<uint8_t> ahead(8192);
    const auto end = Clock::now() + kLimit;
    ssize_t there = 0;
    int32_t done = 0;
    while (there < 5000 && Clock::now() < end) {
      there = ::recv(to, ahead.data(), ahead.size(), MSG_PEEK | MSG_DONTWAIT);
      ASSERT_EQ(net.ops().test(send, &done, nullptr), TUTTI_OK);
      ASSERT_EQ(done, 0) << "complete although the receiver has taken nothing";
    }
    EXPECT_GE(there, 5000);
  }
  ASSERT_TRUE(net.finish({receive, send}));
  EXPECT_EQ(buffer, data);
}

/// The ends of all rails but one are shut down, while data are under way.
TEST_F(Rails, DataGoesOnExactlyOnceWhenRailsEnd) {
  for (const size_t rails : {2u, 2u, 3u, 4u}) {
    for (const bool sender_first : {true, false}) {
      Net net(with(rails, {{"settings.net.socket.stripe_min", "1KiB"}}));
      const auto [sender, receiver] = net.connect();
      auto ends = rails_of(net, rails);
      ASSERT_EQ(ends.size(), rails);
      std::shuffle(ends.begin(), ends.end(), random_);
      std::vector<size_t> sizes(400);
      for (size_t& size : sizes) size = random_() % 4 == 0 ? random_() % 200000 : random_() % 3000;
      std::vector<size_t> cuts;  // numbers of messages
      while (cuts.size() + 1 < rails) cuts.push_back(random_() % (sizes.size() - 20));
      std::sort(cuts.begin(), cuts.end());
      std::atomic<size_t> sent = 0, received = 0;
      const auto data = random_bytes(5000);
      std::vector<uint8_t> out(data.size());
      void* next = nullptr;
      const auto seed = static_cast<uint32_t>(random_());
      std::thread sending([&, from = sender] { run(net, from, true, sizes, seed, sent); });
      std::thread receiving([&, to = receiver] {
        run(net, to, false, sizes, seed, received);
        await_sender(net, to, out, sent, sizes.size(), next);
      });
      const auto end = Clock::now() + kLimit;
      for (size_t i = 0; i < cuts.size(); ++i) {
        while (received < cuts[i] && Clock::now() < end) std::this_thread::yield();
        ::shutdown(sender_first ? ends[i].first : ends[i].second, SHUT_RDWR);
      }
      sending.join();
      receiving.join();
      ASSERT_EQ(received, sizes.size());
      // No message came twice: the next one is another message.
      ASSERT_TRUE(net.finish({next, net.send(sender, data, 0)}));
      EXPECT_EQ(out, data);
    }
  }
}

TEST_F(Rails, ALostRailIsReportedOnceWithBothEnds) {
  Net net(with(2));
  for (int i = 0; i < 3; ++i) {  // the rails of all connections have the same addresses; ends are listed once
    const auto [sender, receiver] = net.connect();
    ::shutdown(rails_of(net, 2).front().first, SHUT_RDWR);
    const auto data = random_bytes(100000);
    std::vector<uint8_t> out(data.size());
    ASSERT_TRUE(net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}));
    EXPECT_EQ(out, data);
  }
  const auto lines = logged("is lost");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines.front(), testing::ContainsRegex(" warn net.socket the rail 127.0.0.1:[0-9]+ \\(lo\\) to "
                                                    "127.0.0.1:[0-9]+ \\(lo\\) is lost: .*over 1 of 2 rails"));
}

TEST_F(Rails, TheLastRailNamesTheEnds) {
  Net net(with(2));
  const auto [sender, receiver] = net.connect();
  const auto ends = rails_of(net, 2);
  const auto data = random_bytes(1 << 20);
  std::vector<uint8_t> out(data.size());
  void* const receive = net.recv(receiver, out, 0);
  for (const auto& [from, to] : ends) ::shutdown(from, SHUT_RDWR);
  EXPECT_EQ(code_of(net, receive), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(),
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr("(lo) to 127.0.0.1:"), HasSubstr("all rails are lost")));
  void* request = nullptr;
  int32_t code = TUTTI_OK;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_OK && Clock::now() < end) {
    code = net.ops().send(sender, data.data(), data.size(), 0, nullptr, &request);
    if (code == TUTTI_OK && request != nullptr) code = code_of(net, request);
  }
  EXPECT_EQ(code, TUTTI_REMOTE);
}

TEST_F(Rails, WhatWasSentBeforeTheCloseArrives) {
  Net net(with(2));
  const auto [sender, receiver] = net.connect();
  const auto data = random_bytes(10000);
  std::vector<uint8_t> out(data.size()), never(10);
  void* const first = net.recv(receiver, out, 0);
  void* const second = net.recv(receiver, never, 0);
  ASSERT_TRUE(net.finish({net.send(sender, data, 0)}));  // the receiver does nothing meanwhile
  net.close(sender);
  EXPECT_EQ(code_of(net, first), TUTTI_OK);
  EXPECT_EQ(out, data);
  EXPECT_EQ(code_of(net, second), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("127.0.0.1"), HasSubstr("closed it")));
  EXPECT_TRUE(logged("is lost").empty());
}

/// A short send is complete before its receiver has taken it. Its bytes must outlive its rail.
TEST_F(Rails, KeptBytesAreSentAgain) {
  Net net(with(2));
  const auto [sender, receiver] = net.connect();
  std::vector<std::vector<uint8_t>> data, out;
  std::vector<void*> receives;
  for (int i = 0; i < 8; ++i) {
    data.push_back(random_bytes(1000));
    out.emplace_back(1000, uint8_t{0});
  }
  for (auto& buffer : out) receives.push_back(net.recv(receiver, buffer, 0));
  for (const auto& message : data) {
    std::vector<uint8_t> copy = message;
    ASSERT_TRUE(net.finish({net.send(sender, copy, 0)}));
    std::fill(copy.begin(), copy.end(), uint8_t{0});
  }
  // What the receiver has not read on this rail is gone.
  const auto [from, to] = rails_of(net, 2).front();
  std::vector<uint8_t> unread(1 << 16);
  const ssize_t gone = ::recv(to, unread.data(), unread.size(), MSG_DONTWAIT);
  ASSERT_GT(gone, 1000);
  ::shutdown(to, SHUT_RDWR);
  std::vector<uint8_t> last(10);
  receives.push_back(net.recv(receiver, last, 0));
  const std::vector<uint8_t> ten = random_bytes(10);
  receives.push_back(net.send(sender, ten, 0));
  ASSERT_TRUE(net.finish(receives));
  EXPECT_EQ(out, data);
  EXPECT_EQ(last, ten);
}

TEST_F(Rails, TagsAndGroupsMatch) {
  Net net(with(2, {{"settings.net.socket.stripe_min", "100"}}));
  const auto [sender, receiver] = net.connect();
  test::expect_groups_match_tags(net, sender, receiver);
}

/// A rail whose address refuses connections is left out, and the connection stands.
TEST_F(Rails, ARailThatCannotBeConnectedIsLeftOut) {
  for (const size_t dead : {0u, 1u}) {
    Net net(with(2));
    const base::Fd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // bound, but not listening
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ASSERT_EQ(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    net_socket::Address to = address_in(net.handle());
    port_of(to, dead) = ntohs(address.sin_port);
    tutti_net_handle handle{};
    std::memcpy(handle.bytes, &to, sizeof to);
    const auto [sender, receiver] = net.connect(handle);
    ASSERT_EQ(rails_of(net, 2).size(), 1u);
    const auto data = random_bytes(300000);
    std::vector<uint8_t> out(data.size());
    ASSERT_TRUE(net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}));
    EXPECT_EQ(out, data);
    EXPECT_EQ(logged("is left out").size(), dead + 1);
  }
}

/// The loopback alone gives the listener one interface, however many rails are set.
TEST_F(Rails, RanksWithDifferentNumbersAreTold) {
  for (const auto& [listens, connects] : {std::pair(1, 2), {2, 1}, {2, 3}, {4, 2}}) {
    Net listener(with(static_cast<size_t>(listens))), connector(with(static_cast<size_t>(connects)));
    void *state = nullptr, *connection = nullptr;
    EXPECT_EQ(connector.ops().connect(connector.context(), 0, &listener.handle(), &state, &connection), TUTTI_MISMATCH);
    EXPECT_THAT(plugin::take_failure_text(),
                HasSubstr("settings.net.socket.rails is " + std::to_string(connects) + " on this rank, but " +
                          std::to_string(listens) + " on the rank at 127.0.0.1:"));
  }
}

TEST_F(Rails, SettingsThatContradictAreRefused) {
  for (const auto& [name, value] : {std::pair{"streams", "2"}, {"tls", "on"}}) {
    config::LoadOptions options;
    options.site_file = "";
    options.settings = {{"settings.net.socket.rails", "2"}, {std::string("settings.net.socket.") + name, value}};
    auto config = test::required(config::Config::load(options));
    const auto image = test::required(plugin::Image::load(plugin::Kind::kNetwork, "socket",
                                                          TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-net-socket.so"));
    const auto opened = plugin::Plugin::open(image, config);
    ASSERT_FALSE(opened.ok());
    EXPECT_THAT(opened.status().text(), AllOf(HasSubstr("settings.net.socket.rails is 2"), HasSubstr(name)));
  }
}

}  // namespace
}  // namespace tutti
