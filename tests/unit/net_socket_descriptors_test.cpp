// SPDX-License-Identifier: Apache-2.0
// The socket network in a process that is out of descriptors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/socket.h"
#include "config/config.h"
#include "log/log.h"
#include "net-socket/wire.h"
#include "plugin/loader.h"
#include "unit/required.h"
#include "unit/socket_handle.h"
#include "unit/socket_network.h"

namespace tutti {
namespace {

using net_socket::Address;
using test::address_of;
using test::kLimit;
using test::kOneStream;
using test::random_bytes;
using test::SocketNetwork;
using Clock = std::chrono::steady_clock;

constexpr const char* kRemedy =
    ": Too many open files: this process may have .* descriptors; raise the limit \\(ulimit -n\\)";

/// With a silence of 100 ms, a connection may be silent for 1.2 s. With a silence of 1 s, it may be for 3 s.
SocketNetwork::Settings with_silence(const char* silence) {
  return {{"settings.net.socket.streams", "1"}, {"settings.net.socket.silence", silence}};
}
const SocketNetwork::Settings kShortSilence = with_silence("100ms");
constexpr std::chrono::milliseconds kSilenceLimit{1200};
constexpr std::chrono::milliseconds kLongSilenceLimit{3000};

base::Fd make_socket() {
  return base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

void connect_to(const Address& address, const base::Fd& socket) {
  const base::SocketAddress to(std::span(address.ip).first(4), address.port);
  EXPECT_EQ(::connect(socket.get(), to.data(), to.size()), 0) << std::strerror(errno);
}

base::Fd connect_to(const Address& address) {
  base::Fd socket = make_socket();
  connect_to(address, socket);
  return socket;
}

/// Leaves `spare` descriptors, of which the soft limit allows `soft`. Open descriptors may have gaps between them.
void limit_descriptors(size_t soft, size_t spare) {
  std::vector<base::Fd> free;
  while (free.size() <= spare) free.emplace_back(dup(0));
  const rlimit limit{static_cast<rlim_t>(free[soft].get()), static_cast<rlim_t>(free[spare].get())};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) std::_Exit(70);
}

/// Exit codes of the children below.
int without_soft_limit() {
  SocketNetwork net(kOneStream);
  const Address address = address_of(net.handle());
  std::vector<base::Fd> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(connect_to(address));
  limit_descriptors(5, 500);
  net.refuse_strays(100);
  for (int i = 0; i < 20; ++i) strangers.push_back(connect_to(address));
  return testing::Test::HasFailure() ? 1 : 0;
}

int without_descriptors() {
  SocketNetwork net(kOneStream);
  const Address address = address_of(net.handle());
  std::vector<base::Fd> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(connect_to(address));
  limit_descriptors(0, 0);
  net.refuse_strays(1000);
  strangers.clear();
  const auto [sender, receiver] = net.connect();
  const auto data = random_bytes(100);
  std::vector<uint8_t> out(100);
  const bool arrived = net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}) && out == data;
  return arrived && !testing::Test::HasFailure() ? 0 : 1;
}

int connect_without_soft_limit() {
  SocketNetwork net(kOneStream);
  limit_descriptors(0, 500);
  net.connect();
  return testing::Test::HasFailure() ? 1 : 0;
}

/// A connection tries again for a while, as descriptors may become free.
int connect_without_descriptors() {
  SocketNetwork net(kShortSilence);
  limit_descriptors(0, 0);
  void *connecting = nullptr, *sender = nullptr;
  plugin::take_failure_text();
  int32_t code = TUTTI_AGAIN;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_AGAIN && Clock::now() < end)
    code = net.ops().connect(net.context(), 0, &net.handle(), &connecting, &sender);
  EXPECT_EQ(code, TUTTI_SYSTEM);
  EXPECT_THAT(plugin::take_failure_text(), testing::ContainsRegex(std::string("cannot make a socket") + kRemedy));
  return testing::Test::HasFailure() ? 1 : 0;
}

/// Calls accept until it fails or the time is over; the last code.
int32_t accept_for(SocketNetwork& net, Clock::duration time) {
  void *state = nullptr, *connection = nullptr;
  int32_t code = TUTTI_AGAIN;
  const auto end = Clock::now() + time;
  while (code == TUTTI_AGAIN && Clock::now() < end) code = net.accept(&state, &connection);
  return code;
}

/// A connection waits for a descriptor that never comes.
int accept_without_descriptors(const std::string& log_file) {
  EXPECT_TRUE(log::configure(log::Level::kWarn, log_file).ok());
  SocketNetwork net(kShortSilence);
  base::Fd waiting = connect_to(address_of(net.handle()));
  limit_descriptors(0, 0);
  plugin::take_failure_text();
  const auto start = Clock::now();
  EXPECT_EQ(accept_for(net, kLimit), TUTTI_SYSTEM);
  EXPECT_GE(Clock::now() - start, kSilenceLimit);
  EXPECT_THAT(plugin::take_failure_text(), testing::ContainsRegex(std::string("cannot accept connections") + kRemedy));
  waiting.reset();  // for a descriptor of the file
  std::ifstream in(log_file);
  size_t warnings = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.find(" warn ") == std::string::npos) continue;
    ++warnings;
    EXPECT_THAT(line, testing::ContainsRegex(std::string("cannot accept connections") + kRemedy));
  }
  EXPECT_EQ(warnings, 1u);
  return testing::Test::HasFailure() ? 1 : 0;
}

/// The last two descriptors are the ends of one connection. The listener asks for a third one, for no connection.
int connect_with_last_descriptors() {
  SocketNetwork net(kShortSilence);
  limit_descriptors(2, 2);
  net.connect();
  EXPECT_EQ(accept_for(net, kSilenceLimit * 3 / 2), TUTTI_AGAIN);
  return testing::Test::HasFailure() ? 1 : 0;
}

/// Each lack takes three quarters of the limit. Both together exceed it.
int lack_descriptors_twice() {
  SocketNetwork net(with_silence("1s"));
  const Address address = address_of(net.handle());
  base::Fd stranger = connect_to(address);
  const base::Fd late = make_socket();
  base::Fd spare(dup(0));
  limit_descriptors(0, 0);
  EXPECT_EQ(accept_for(net, kLongSilenceLimit * 3 / 4), TUTTI_AGAIN);
  spare.reset();
  stranger.reset();
  net.connect();  // takes both descriptors
  connect_to(address, late);
  EXPECT_EQ(accept_for(net, kLongSilenceLimit * 3 / 4), TUTTI_AGAIN);
  EXPECT_EQ(accept_for(net, kLimit), TUTTI_SYSTEM);
  return testing::Test::HasFailure() ? 1 : 0;
}

/// A descriptor for the socket, and none for its epoll.
int listen_without_descriptors() {
  SocketNetwork net(kOneStream);
  limit_descriptors(1, 1);
  tutti_net_handle handle{};
  void* listener = nullptr;
  plugin::take_failure_text();
  EXPECT_EQ(net.ops().listen(net.context(), 0, &handle, &listener), TUTTI_SYSTEM);
  EXPECT_THAT(plugin::take_failure_text(),
              testing::ContainsRegex(std::string("cannot make an epoll descriptor") + kRemedy));
  return testing::Test::HasFailure() ? 1 : 0;
}

int open_without_descriptors() {
  config::LoadOptions options;
  options.site_file = "";
  auto config = test::required(config::Config::load(options));
  const auto image = test::required(
      plugin::Image::load(plugin::Kind::kNetwork, "socket", TUTTI_BINARY_DIR "/lib/tutti/plugins/tutti-net-socket.so"));
  limit_descriptors(0, 0);
  const auto opened = plugin::Plugin::open(image, config);
  EXPECT_FALSE(opened.ok());
  EXPECT_THAT(opened.status().text(),
              testing::ContainsRegex(std::string("cannot list the network interfaces") + kRemedy));
  return testing::Test::HasFailure() ? 1 : 0;
}

TEST(Descriptors, AcceptFailsIfAConnectionWaitsForTooLong) {
  const std::string log_file = testing::TempDir() + "tutti-descriptors-" + std::to_string(getpid());
  EXPECT_EXIT(std::_Exit(accept_without_descriptors(log_file)), testing::ExitedWithCode(0), "");
  std::filesystem::remove(log_file);
}

TEST(Descriptors, TheLastOnesAreUsed) {
  EXPECT_EXIT(std::_Exit(connect_with_last_descriptors()), testing::ExitedWithCode(0), "");
}

TEST(Descriptors, ALackThatHasEndedIsForgotten) {
  EXPECT_EXIT(std::_Exit(lack_descriptors_twice()), testing::ExitedWithCode(0), "");
}

TEST(Descriptors, ListenNamesTheLimit) {
  EXPECT_EXIT(std::_Exit(listen_without_descriptors()), testing::ExitedWithCode(0), "");
}

TEST(Descriptors, OpenNamesTheLimit) {
  EXPECT_EXIT(std::_Exit(open_without_descriptors()), testing::ExitedWithCode(0), "");
}

TEST(Descriptors, ConnectRaisesTheSoftLimitOfDescriptors) {
  EXPECT_EXIT(std::_Exit(connect_without_soft_limit()), testing::ExitedWithCode(0), "");
}

TEST(Descriptors, ConnectNamesTheLimitOfDescriptors) {
  EXPECT_EXIT(std::_Exit(connect_without_descriptors()), testing::ExitedWithCode(0), "");
}

TEST(Descriptors, TheSoftLimitOfDescriptorsIsRaised) {
  EXPECT_EXIT(std::_Exit(without_soft_limit()), testing::ExitedWithCode(0), "");
}

TEST(Descriptors, WithoutDescriptorsTheListenerWaitsAndGoesOn) {
  EXPECT_EXIT(std::_Exit(without_descriptors()), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti
