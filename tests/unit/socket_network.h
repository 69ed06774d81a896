// SPDX-License-Identifier: Apache-2.0
// The socket network through its table alone, as the host calls it.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/required.h"

namespace tutti::test {

inline constexpr std::chrono::seconds kLimit{20};

/// One open plugin with a context, a listener, and connections made through it.
class SocketNetwork {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;
  explicit SocketNetwork(Settings settings = {}) {
    config::LoadOptions options;
    options.site_file = "";
    options.settings = std::move(settings);
    options.settings.emplace_back("settings.net.socket.interface", "[=lo]");
    auto config = required(config::Config::load(options));
    const auto image = required(plugin::Image::load(plugin::Kind::kNetwork, "socket",
                                                    TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-net-socket.so"));
    plugin_ = required(plugin::Plugin::open(image, config));
    EXPECT_EQ(ops().create(plugin_->self(), 1, &context_), TUTTI_OK);
    EXPECT_EQ(ops().listen(context_, 0, &handle_, &listener_), TUTTI_OK);
  }
  ~SocketNetwork() {
    for (void* connection : connections_) ops().close_connection(connection);
    ops().close_listener(listener_);
    ops().destroy(context_);
  }
  const tutti_network_ops& ops() const { return *plugin_->ops<tutti_network_ops>(); }
  void* context() const { return context_; }
  const tutti_net_handle& handle() const { return handle_; }

  /// A new connection: {sender, receiver}.
  std::pair<void*, void*> connect() { return connect(handle_); }
  /// The same, with a handle that leads to this listener by a detour.
  std::pair<void*, void*> connect(const tutti_net_handle& handle) {
    void *connecting = nullptr, *accepting = nullptr, *sender = nullptr, *receiver = nullptr;
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while ((sender == nullptr || receiver == nullptr) && std::chrono::steady_clock::now() < end) {
      const int32_t connected =
          sender == nullptr ? ops().connect(context_, 0, &handle, &connecting, &sender) : TUTTI_OK;
      const int32_t accepted = receiver == nullptr ? ops().accept(listener_, &accepting, &receiver) : TUTTI_OK;
      EXPECT_TRUE(connected == TUTTI_OK || connected == TUTTI_AGAIN);
      EXPECT_TRUE(accepted == TUTTI_OK || accepted == TUTTI_AGAIN);
    }
    EXPECT_NE(sender, nullptr);
    EXPECT_NE(receiver, nullptr);
    connections_.insert(connections_.end(), {sender, receiver});
    return {sender, receiver};
  }
  int32_t accept(void** state, void** connection) { return ops().accept(listener_, state, connection); }
  /// Closes the connection at the end.
  void owns(void* connection) { connections_.push_back(connection); }
  void close(void* connection) {
    ops().close_connection(connection);
    std::erase(connections_, connection);
  }
  /// One accept, which must not find a connection.
  void refuse_strays(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      void *state = nullptr, *connection = nullptr;
      EXPECT_EQ(ops().accept(listener_, &state, &connection), TUTTI_AGAIN);
    }
  }

  void* send(void* connection, const std::vector<uint8_t>& data, uint32_t tag) {
    void* request = nullptr;
    EXPECT_EQ(ops().send(connection, data.data(), data.size(), tag, nullptr, &request), TUTTI_OK);
    return request;
  }
  void* recv(void* connection, std::vector<uint8_t>& data, uint32_t tag) {
    void* address = data.data();
    const uint64_t bytes = data.size();
    void* none = nullptr;
    void* request = nullptr;
    EXPECT_EQ(ops().recv(connection, 1, &address, &bytes, &tag, &none, &request), TUTTI_OK);
    return request;
  }
  /// Tests each request once, and removes the requests that are done. False if a test fails.
  bool advance(std::vector<void*>& requests) {
    for (size_t i = 0; i < requests.size();) {
      int32_t done = 0;
      uint64_t bytes = 0;
      if (ops().test(requests[i], &done, &bytes) != TUTTI_OK) return false;
      if (done != 0) {
        requests.erase(requests.begin() + static_cast<long>(i));
      } else {
        ++i;
      }
    }
    return true;
  }
  /// Pushes on all requests until done; false when the time is up or one fails.
  bool finish(std::vector<void*> requests) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    while (!requests.empty() && std::chrono::steady_clock::now() < end) {
      if (!advance(requests)) return false;
    }
    return requests.empty();
  }

 private:
  std::shared_ptr<plugin::Plugin> plugin_;
  void* context_ = nullptr;
  void* listener_ = nullptr;
  tutti_net_handle handle_{};
  std::vector<void*> connections_;
};

inline std::vector<uint8_t> random_bytes(size_t size) {
  static std::mt19937_64 random(std::random_device{}());
  std::vector<uint8_t> data(size);
  for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
  return data;
}

/// Sends two messages against the order of their tags in a grouped receive: each message takes the buffer of its tag.
inline void expect_groups_match_tags(SocketNetwork& net, void* sender, void* receiver) {
  const auto first = random_bytes(100), second = random_bytes(200);
  std::vector<uint8_t> a(200), b(200);
  void* addresses[] = {a.data(), b.data()};
  const uint64_t bytes[] = {a.size(), b.size()};
  const uint32_t tags[] = {1, 2};
  void* none[] = {nullptr, nullptr};
  void* group = nullptr;
  ASSERT_EQ(net.ops().recv(receiver, 2, addresses, bytes, tags, none, &group), TUTTI_OK);
  std::vector<void*> sends = {net.send(sender, second, 2), net.send(sender, first, 1)};
  int32_t done = 0;
  uint64_t got[2] = {0, 0};
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (done == 0 && std::chrono::steady_clock::now() < end) {
    ASSERT_EQ(net.ops().test(group, &done, got), TUTTI_OK);
    ASSERT_TRUE(net.advance(sends));
  }
  EXPECT_TRUE(net.finish(sends));
  EXPECT_EQ(got[0], 100u);
  EXPECT_EQ(got[1], 200u);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), a.begin()));
  EXPECT_EQ(b, second);
}

/// A TCP socket of this process, over IPv4, with a peer.
struct TcpSocket {
  int fd = -1;
  uint16_t here = 0;   ///< port
  uint16_t there = 0;  ///< port of the peer
};

inline std::vector<TcpSocket> tcp_sockets() {
  std::vector<TcpSocket> all;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in here{}, there{};
    socklen_t length = sizeof here, other_length = sizeof there;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) != 0 || here.sin_family != AF_INET ||
        ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &other_length) != 0) {
      continue;
    }
    all.push_back({fd, ntohs(here.sin_port), ntohs(there.sin_port)});
  }
  return all;
}

inline const SocketNetwork::Settings kOneStream = {{"settings.net.socket.streams", "1"}};

}  // namespace tutti::test
