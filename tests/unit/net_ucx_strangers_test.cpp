// SPDX-License-Identifier: Apache-2.0
// The network ucx and what it must refuse: strangers, impostors, wrong settings, and a system that refuses. Each
// failure has a sentence, and each wait ends.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <ucp/api/ucp_version.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "net-ucx/descriptors.h"
#include "net-ucx/wire.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/net_ucx_sides.h"
#include "unit/required.h"

namespace tutti {
namespace {

using test_ucx::Bytes;
using test_ucx::Clock;
using test_ucx::Pair;
using test_ucx::random_bytes;
using test_ucx::Settings;
using test_ucx::Side;
using test_ucx::until;
using testing::AllOf;
using testing::HasSubstr;

/// A silence after which waits end soon: 2 * 100 ms + 1 s.
const Settings kImpatient = {{"settings.net.ucx.transports", "[tcp]"}, {"settings.net.ucx.silence", "100ms"}};
constexpr std::chrono::seconds kImpatientLimit{4};

net_ucx::Address address_of(const tutti_net_handle& handle) {
  net_ucx::Address address;
  std::memcpy(&address, handle.bytes, sizeof address);
  return address;
}

sockaddr_in acceptor_of(const tutti_net_handle& handle) {
  sockaddr_in acceptor{};
  acceptor.sin_family = AF_INET;
  acceptor.sin_port = htons(address_of(handle).port);
  acceptor.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return acceptor;
}

base::Fd call(const sockaddr_in& to) {
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << std::strerror(errno);
  return socket;
}

/// Addresses at which this process listens for TCP: the acceptors of lines, and UCX's own.
std::vector<sockaddr_in> own_acceptors() {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    own.insert(std::filesystem::read_symlink(entry.path(), error).string());
  }
  std::vector<sockaddr_in> acceptors;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream columns(line);
    std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
    columns >> number >> local >> remote >> state >> queues >> timer >> retries >> user >> timeout >> inode;
    if (state != "0A" || !own.contains("socket:[" + inode + "]")) continue;
    sockaddr_in& acceptor = acceptors.emplace_back();
    acceptor.sin_family = AF_INET;
    acceptor.sin_addr.s_addr = static_cast<uint32_t>(std::stoul(local, nullptr, 16));
    acceptor.sin_port = htons(static_cast<uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return acceptors;
}

TEST(Ucx, StrangersChangeNothing) {
  const Pair net;
  const std::vector<sockaddr_in> acceptors = own_acceptors();
  ASSERT_GT(acceptors.size(), 2u) << "UCX listens, too";
  std::vector<base::Fd> strangers;
  for (const sockaddr_in& acceptor : acceptors) {
    for (size_t i = 0; i < 150; ++i) {
      base::Fd& stranger = strangers.emplace_back(call(acceptor));
      Bytes garbage = random_bytes(i * 11);
      if (i % 4 == 0 && garbage.size() >= 8) std::memcpy(garbage.data(), &net_ucx::kMagic, 8);
      send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);  // the listener may have closed it already
      if (i % 3 == 0) stranger = base::Fd();
      void* none = nullptr;
      ASSERT_EQ(net.to->accept(&none), TUTTI_AGAIN) << plugin::take_failure_text();
    }
  }
  const auto [sender, receiver] = net.connect();
  const Bytes data = random_bytes(1 << 20);
  Bytes out(data.size());
  ASSERT_TRUE(net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}));
  EXPECT_EQ(out, data);
  out.assign(out.size(), 0);
  ASSERT_TRUE(net.finish({net.recv(out), net.send(data)}));
  EXPECT_EQ(out, data);
}

/// A listener made by hand, whose lines are handled by `handle`, one after the other. `handle` gets the line.
class Impostor {
 public:
  explicit Impostor(std::function<void(const base::Fd&)> handle)
      : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    test::require(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), size) == 0, "bind");
    test::require(::listen(listener_.get(), 8) == 0, "listen");
    test::require(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0, "getsockname");
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this, handle = std::move(handle)] {
      for (;;) {
        const base::Fd line(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!line.valid()) return;
        handle(line);
      }
    });
  }
  ~Impostor() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // ends accept4
    thread_.join();
  }
  Impostor(const Impostor&) = delete;
  Impostor& operator=(const Impostor&) = delete;

  /// The last answer of connect to the handle of `side` with the port of the impostor.
  int32_t connect(Side& side) const {
    net_ucx::Address address = address_of(side.handle());
    address.port = port_;
    tutti_net_handle handle{};
    std::memcpy(handle.bytes, &address, sizeof address);
    void *state = nullptr, *connection = nullptr;
    int32_t code = TUTTI_AGAIN;
    until([&] { return (code = side.connect(handle, &state, &connection)) != TUTTI_AGAIN; });
    return code;
  }
  std::string text() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  base::Fd listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

void say(const base::Fd& line, const Bytes& bytes) {
  EXPECT_EQ(::send(line.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

/// Reads until the plugin closes the line.
void drain(const base::Fd& line) {
  uint8_t byte = 0;
  while (::recv(line.get(), &byte, 1, 0) > 0) {
  }
}

/// The answer of connect to a listener that is made by hand and says `greeting`.
int32_t connect_to_impostor(const Bytes& greeting) {
  Side side(Settings{{"settings.net.ucx.transports", "[tcp]"}});
  const Impostor impostor([&](const base::Fd& line) {
    say(line, greeting);
    drain(line);
  });
  return impostor.connect(side);
}

Bytes greeting_of(net_ucx::Challenge challenge, size_t more) {
  Bytes bytes(sizeof challenge);
  std::memcpy(bytes.data(), &challenge, sizeof challenge);
  bytes.resize(bytes.size() + more, 1);
  return bytes;
}

uint32_t installed_ucx() {
  return UCP_API_MAJOR << 16 | UCP_API_MINOR;
}

TEST(Ucx, ImpostorsAreToldByName) {
  EXPECT_EQ(connect_to_impostor(Bytes(100, 'x')), TUTTI_VERSION_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("same version"));
  EXPECT_EQ(connect_to_impostor(greeting_of({.ucx_version = 99 << 16, .address_bytes = 10}, 10)),
            TUTTI_VERSION_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("has UCX 99.0"));
  EXPECT_EQ(connect_to_impostor(greeting_of({.ucx_version = installed_ucx(), .address_bytes = 1u << 30}, 10)),
            TUTTI_VERSION_MISMATCH);
  EXPECT_EQ(
      connect_to_impostor(greeting_of({.ucx_version = installed_ucx(), .address_bytes = 10}, 10 + sizeof(sdk::Proof))),
      TUTTI_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("another process has taken its port"));
}

TEST(Ucx, AForeignHandleIsRefused) {
  Side side(Settings{});
  const tutti_net_handle foreign{};
  void *state = nullptr, *connection = nullptr;
  EXPECT_EQ(side.connect(foreign, &state, &connection), TUTTI_INVALID_ARGUMENT);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("same network plugin"));
}

TEST(Ucx, AClosedPortIsTold) {
  Side side(Settings{});
  auto closed = std::make_unique<Side>(Settings{});
  const tutti_net_handle handle = closed->handle();
  closed.reset();
  void *state = nullptr, *connection = nullptr;
  int32_t code = TUTTI_AGAIN;
  until([&] { return (code = side.connect(handle, &state, &connection)) != TUTTI_AGAIN; });
  EXPECT_EQ(code, TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("refuses connections"));
}

/// How a connect ends if the listener ends after so many turns of both sides. TUTTI_OK: the connection stood before.
int32_t connect_to_ending_listener(const Settings& settings, int turns) {
  constexpr std::chrono::milliseconds kTurn{4};  // a listener visits its lines once in 1 ms
  Side from(settings);
  auto to = std::make_unique<Side>(settings);
  const tutti_net_handle handle = to->handle();
  void *state = nullptr, *out = nullptr, *in = nullptr;
  int32_t code = TUTTI_AGAIN;
  for (int turn = 0; turn < turns && code == TUTTI_AGAIN; ++turn) {
    code = from.connect(handle, &state, &out);
    for (const auto end = Clock::now() + kTurn; Clock::now() < end && in == nullptr;) {
      const int32_t accepted = to->accept(&in);
      EXPECT_TRUE(accepted == TUTTI_OK || accepted == TUTTI_AGAIN);
    }
  }
  to.reset();
  if (code == TUTTI_AGAIN) until([&] { return (code = from.connect(handle, &state, &out)) != TUTTI_AGAIN; });
  return code;
}

/// The core forgives that a rank which has left cannot be reached, but no other failure.
TEST(Ucx, AListenerThatEndsWhileAConnectIsUnderWayIsRemote) {
  for (const char* const transports : {"[sm]", "[tcp]"}) {
    const Settings settings = {{"settings.net.ucx.transports", transports}};
    int32_t code = TUTTI_REMOTE;
    for (int turns = 0; code != TUTTI_OK; ++turns) {
      code = connect_to_ending_listener(settings, turns);
      ASSERT_TRUE(code == TUTTI_OK || code == TUTTI_REMOTE)
          << transports << " after " << turns << " turns: " << plugin::take_failure_text();
    }
  }
}

/// UCX's transport `self` reaches the own worker only.
TEST(Ucx, WithoutACommonTransportConnectSaysSo) {
  const Settings settings = {{"settings.net.ucx.transports", "[self]"}};
  Side from(settings), to(settings);
  void *state = nullptr, *out = nullptr, *in = nullptr;
  int32_t code = TUTTI_AGAIN;
  until([&] {
    code = from.connect(to.handle(), &state, &out);
    const int32_t accepted = in == nullptr ? to.accept(&in) : TUTTI_OK;
    EXPECT_TRUE(accepted == TUTTI_OK || accepted == TUTTI_AGAIN);
    return code != TUTTI_AGAIN;
  });
  EXPECT_EQ(code, TUTTI_UNSUPPORTED);
  EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("settings.net.ucx.transports"), HasSubstr("UCX_")));
}

TEST(Ucx, BadSettingsAreToldAtTheStart) {
  EXPECT_THAT(
      [] {
        const Side side(Settings{{"settings.net.ucx.transports", "[nosuch]"}});
      },
      testing::ThrowsMessage<std::runtime_error>(HasSubstr("settings.net.ucx.transports")));
}

/// Greetings of which a part is missing, changed or random, and lines that close at any point.
TEST(Ucx, TornGreetingsEndTheConnect) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  Side side(kImpatient);
  for (int round = 0; round < 12; ++round) {
    Bytes greeting = greeting_of({.ucx_version = installed_ucx(), .address_bytes = 100}, 100 + sizeof(sdk::Proof));
    const size_t length = random() % greeting.size();
    if (round % 2 == 0) {
      greeting.resize(length);  // the line then closes
    } else {
      for (size_t i = length; i < greeting.size(); ++i) greeting[i] = static_cast<uint8_t>(random());
    }
    const Impostor impostor([&](const base::Fd& line) {
      say(line, greeting);
      if (round % 2 == 1) drain(line);
    });
    const auto start = Clock::now();
    const int32_t code = impostor.connect(side);
    EXPECT_TRUE(code == TUTTI_REMOTE || code == TUTTI_MISMATCH || code == TUTTI_VERSION_MISMATCH)
        << code << ", seed " << seed;
    EXPECT_LT(Clock::now() - start, kImpatientLimit) << "seed " << seed;
    EXPECT_THAT(plugin::take_failure_text(), HasSubstr(impostor.text())) << "seed " << seed;
  }
}

/// Answers to a true greeting of which a part is missing, changed or random.
TEST(Ucx, TornAnswersAreStrangers) {
  const uint32_t seed = std::random_device{}();
  std::mt19937 random(seed);
  Side side(kImpatient);
  const net_ucx::Address address = address_of(side.handle());
  const sockaddr_in acceptor = acceptor_of(side.handle());
  for (int round = 0; round < 60; ++round) {
    const base::Fd line = call(acceptor);
    net_ucx::Challenge challenge;
    Bytes worker(1);
    void* none = nullptr;
    const auto hear = [&](void* to, size_t bytes) {
      for (size_t got = 0; got < bytes;) {
        ASSERT_EQ(side.accept(&none), TUTTI_AGAIN);
        const ssize_t now = ::recv(line.get(), static_cast<uint8_t*>(to) + got, bytes - got, MSG_DONTWAIT);
        if (now > 0) got += static_cast<size_t>(now);
      }
    };
    hear(&challenge, sizeof challenge);
    worker.resize(challenge.address_bytes);
    hear(worker.data(), worker.size());
    net_ucx::Hello hello{.nonce = test::required(sdk::make_nonce()), .proof = {}};
    hello.proof = test::required(sdk::prove(address.secret, sdk::Side::kConnector, challenge.nonce, hello.nonce,
                                            net_ucx::proved(challenge, std::as_bytes(std::span(worker)))));
    Bytes answer(sizeof hello);
    std::memcpy(answer.data(), &hello, sizeof hello);
    const size_t at = random() % answer.size();
    round % 2 == 0 ? answer.resize(at) : static_cast<void>(answer[at] ^= static_cast<uint8_t>(1 + random() % 255));
    say(line, answer);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(side.accept(&none), TUTTI_AGAIN) << "seed " << seed;
  }
  Side friendly(kImpatient);
  void *state = nullptr, *out = nullptr, *in = nullptr;
  ASSERT_TRUE(until([&] {
    if (out == nullptr) friendly.connect(side.handle(), &state, &out);
    if (in == nullptr) side.accept(&in);
    return out != nullptr && in != nullptr;
  })) << "seed "
      << seed;
}

/// A listener that proves itself, but whose worker never gets the trial.
TEST(Ucx, UcxThatDoesNotArriveIsTold) {
  Side side(kImpatient), elsewhere(kImpatient);
  const Impostor impostor([&](const base::Fd& line) {
    const net_ucx::Address address = address_of(side.handle());
    const base::Fd true_line = call(acceptor_of(elsewhere.handle()));  // for an address of a worker that lives
    net_ucx::Challenge challenge;
    void* none = nullptr;
    const auto move = [](const base::Fd& from, void* to, size_t bytes) {
      EXPECT_EQ(::recv(from.get(), to, bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
    };
    for (int i = 0; i < 1000; ++i) elsewhere.accept(&none);
    move(true_line, &challenge, sizeof challenge);
    Bytes worker(challenge.address_bytes);
    move(true_line, worker.data(), worker.size());
    challenge.id = 4711;
    Bytes greeting(sizeof challenge);
    std::memcpy(greeting.data(), &challenge, sizeof challenge);
    greeting.insert(greeting.end(), worker.begin(), worker.end());
    say(line, greeting);
    net_ucx::Hello hello;
    move(line, &hello, sizeof hello);
    const auto proof = test::required(sdk::prove(address.secret, sdk::Side::kAcceptor, challenge.nonce, hello.nonce,
                                                 net_ucx::proved(challenge, std::as_bytes(std::span(worker)))));
    Bytes answer(proof.size() + 1, static_cast<uint8_t>(net_ucx::Verdict::kMissing));
    std::memcpy(answer.data(), proof.data(), proof.size());
    say(line, answer);
    drain(line);
  });
  EXPECT_EQ(impostor.connect(side), TUTTI_UNSUPPORTED);
  EXPECT_THAT(plugin::take_failure_text(),
              AllOf(HasSubstr(impostor.text()), HasSubstr("tcp/lo"), HasSubstr("firewalls")));
}

/// The sentence of a side that cannot be made.
std::string refusal(const Settings& settings) {
  try {
    const Side side(settings);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "it was made";
}

TEST(Ucx, UnknownDevicesAreTold) {
  EXPECT_THAT(refusal({{"settings.net.ucx.devices", "[lo, nosuch0]"}}),
              AllOf(HasSubstr("settings.net.ucx.devices"), HasSubstr("'nosuch0'"), HasSubstr("lo")));
  ASSERT_EQ(setenv("UCX_NET_DEVICES", "nosuch1", 1), 0);
  const std::string from_environment = refusal({});
  unsetenv("UCX_NET_DEVICES");
  EXPECT_THAT(from_environment, AllOf(HasSubstr("UCX_NET_DEVICES"), HasSubstr("'nosuch1'")));
}

TEST(Ucx, UnknownTransportsOfTheEnvironmentAreTold) {
  ASSERT_EQ(setenv("UCX_TLS", "nosuch", 1), 0);
  const std::string from_environment = refusal({});
  unsetenv("UCX_TLS");
  EXPECT_THAT(from_environment, AllOf(HasSubstr("nosuch"), HasSubstr("UCX_")));
}

rlim_t used_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<rlim_t>(std::distance(begin(all), end(all)));
}

/// Ends this process: with 0 if each limit below the need of a context is told, and at least one is.
void exit_after_few_descriptors() {
  { const Side first(kImpatient); }  // what is opened once per process
  const rlim_t used = used_descriptors();
  int refused = 0;
  for (rlim_t more = net_ucx::kContextDescriptors + 16; more > 0; --more) {
    const rlimit few{.rlim_cur = used + more, .rlim_max = used + more};
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) std::exit(2);
    const std::string text = refusal(kImpatient);
    if (text == "it was made" || text.find("TUTTI-P02") != std::string::npos) continue;  // the host cannot load it
    ++refused;
    const bool told = text.find("open files") != std::string::npos && text.find("ulimit -n") != std::string::npos;
    if (!told) fmt::print(stderr, "{} more descriptors: {}\n", more, text);
    if (!told) std::exit(3);
  }
  std::exit(refused > 0 ? 0 : 4);
}

TEST(UcxDeathTest, TooFewDescriptorsAreTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_after_few_descriptors(), testing::ExitedWithCode(0), "");
}

TEST(Ucx, TheSoftLimitOfDescriptorsIsRaised) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = used_descriptors() + net_ucx::kContextDescriptors / 2, .rlim_max = before.rlim_max};
  ASSERT_LT(few.rlim_cur, few.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const std::string text = refusal(kImpatient);
  rlimit after{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &after), 0);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(text, "it was made");
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
}

TEST(Ucx, ARefusedRegistrationIsTold) {
  const Pair net;
  void* registration = nullptr;
  EXPECT_EQ(net.from->ops().register_memory(net.sender, nullptr, 4096, TUTTI_MEMORY_HOST, &registration), TUTTI_SYSTEM);
  EXPECT_EQ(registration, nullptr);
  EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("4096 bytes"), HasSubstr("ulimit -l")));
}

}  // namespace
}  // namespace tutti
