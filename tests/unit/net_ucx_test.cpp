// SPDX-License-Identifier: Apache-2.0
// The network ucx through its table alone, as the host calls it. Two contexts in one process; both ends are pushed on
// by hand.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "plugin/loader.h"
#include "tutti/plugin/network.h"
#include "unit/net_ucx_sides.h"
#include "unit/required.h"

namespace tutti {
namespace {

using test_ucx::Bytes;
using test_ucx::Clock;
using test_ucx::kLimit;
using test_ucx::Pair;
using test_ucx::random_bytes;
using test_ucx::Settings;
using test_ucx::Side;
using test_ucx::until;
using testing::AllOf;
using testing::HasSubstr;

/// The first bytes of functions of libc, and the handlers of signals.
struct Process {
  std::map<std::string, std::array<uint8_t, 16>> code;
  std::map<int, void (*)(int, siginfo_t*, void*)> handlers;
  bool operator==(const Process&) const = default;
};

Process look_at_process() {
  Process found;
  void* const libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  for (const char* name : {"mmap", "munmap", "mremap", "shmat", "shmdt", "sbrk", "brk", "madvise"})
    std::memcpy(found.code[name].data(), dlsym(libc, name), 16);
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    found.handlers[signal] = action.sa_sigaction;
  }
  return found;
}

/// Variables of the user would win over the plugin's.
const Process kBeforeAll = [] {
  unsetenv("UCX_MEM_EVENTS");
  unsetenv("UCX_ERROR_SIGNALS");
  return look_at_process();
}();

/// UCX's memory events patch functions while other threads may run them.
TEST(Ucx, LoadingItChangesNothingOfTheProcess) {
  char** const environment = environ;
  const Pair net;
  EXPECT_EQ(environ, environment);
  EXPECT_EQ(std::getenv("UCX_MEM_EVENTS"), nullptr);
  EXPECT_TRUE(look_at_process() == kBeforeAll);
}

class Transports : public testing::TestWithParam<const char*> {
 protected:
  Settings settings() const { return {{"settings.net.ucx.transports", GetParam()}}; }
};
INSTANTIATE_TEST_SUITE_P(Ucx, Transports, testing::Values("[tcp]", "[sm]", "[tcp, sm, self]"));

TEST_P(Transports, EverySizeArrivesWholeWithItsLength) {
  const Pair net(settings());
  for (const size_t size : {0u, 1u, 63u, 4097u, 65536u, 1000003u, 5u << 20}) {
    const Bytes data = random_bytes(size);
    Bytes buffer(size + 7, 0xa5);
    void* const receive = net.recv(buffer, 7);
    void* const send = net.send(data, 7);
    uint64_t bytes = 0;
    bool received = false, sent = false;
    ASSERT_TRUE(until([&] {
      test::require(received || net.test(receive, received, &bytes) == TUTTI_OK, "the receive fails");
      test::require(sent || net.test(send, sent) == TUTTI_OK, "the send fails");
      return received && sent;
    })) << size;
    EXPECT_EQ(bytes, size);
    EXPECT_TRUE(std::equal(data.begin(), data.end(), buffer.begin()));
    EXPECT_EQ(Bytes(buffer.begin() + static_cast<long>(size), buffer.end()), Bytes(7, 0xa5));
  }
}

TEST_P(Transports, ManyInFlightArriveInOrder) {
  const Pair net(settings());
  constexpr uint32_t kCount = 64;
  std::vector<Bytes> data, out;
  for (uint32_t i = 0; i < kCount; ++i) {
    data.push_back(random_bytes(i % 3 == 0 ? 300000 + i : i * 777));  // rendezvous and eager messages by turns
    out.emplace_back(data.back().size(), uint8_t{0});
  }
  std::vector<void*> sends, receives;
  for (uint32_t i = 0; i < kCount; ++i) {
    sends.push_back(net.send(data[i]));
    receives.push_back(net.recv(out[i]));
    ASSERT_NE(sends.back(), nullptr);
    ASSERT_NE(receives.back(), nullptr);
  }
  // Requests complete in the order posted: whatever is done has all earlier requests done.
  std::set<size_t> done;
  ASSERT_TRUE(until([&] {
    for (size_t back = kCount; back-- > 0;) {
      if (done.contains(back)) continue;
      bool is_done = false;
      EXPECT_EQ(net.test(receives[back], is_done), TUTTI_OK);
      if (!is_done) continue;
      done.insert(back);
      EXPECT_EQ(out[back], data[back]);
    }
    std::erase_if(sends, [&](void* request) {
      bool is_done = false;
      EXPECT_EQ(net.test(request, is_done), TUTTI_OK);
      return is_done;
    });
    return done.size() == kCount && sends.empty();
  }));
  EXPECT_EQ(out, data);
}

TEST_P(Transports, RegisteredMemoryTravels) {
  const Pair net(settings());
  const Bytes data = random_bytes(3 << 20);
  Bytes out(data.size());
  void *sent = nullptr, *received = nullptr;
  ASSERT_EQ(net.from->ops().register_memory(net.sender, const_cast<uint8_t*>(data.data()), data.size(),
                                            TUTTI_MEMORY_HOST, &sent),
            TUTTI_OK);
  ASSERT_EQ(net.to->ops().register_memory(net.receiver, out.data(), out.size(), TUTTI_MEMORY_HOST, &received),
            TUTTI_OK);
  void *send = nullptr, *receive = nullptr;
  void* address = out.data() + 1000;
  const uint64_t bytes = 2 << 20;
  const uint32_t tag = 0;
  ASSERT_EQ(net.to->ops().recv(net.receiver, 1, &address, &bytes, &tag, &received, &receive), TUTTI_OK);
  ASSERT_EQ(net.from->ops().send(net.sender, data.data() + 1000, bytes, tag, sent, &send), TUTTI_OK);
  ASSERT_TRUE(net.finish({receive, send}));
  EXPECT_TRUE(std::equal(out.begin() + 1000, out.begin() + 1000 + static_cast<long>(bytes), data.begin() + 1000));
  EXPECT_EQ(net.from->ops().deregister_memory(net.sender, sent), TUTTI_OK);
  EXPECT_EQ(net.to->ops().deregister_memory(net.receiver, received), TUTTI_OK);
  EXPECT_EQ(net.from->ops().register_memory(net.sender, &send, 8, TUTTI_MEMORY_CUDA, &sent), TUTTI_UNSUPPORTED);
}

TEST_P(Transports, WhatWasSentBeforeTheCloseArrives) {
  constexpr size_t kCount = 20;
  for (int round = 0; round < 20; ++round) {
    const Pair net(settings());
    std::vector<Bytes> data, out(kCount, Bytes(4000));
    for (size_t i = 0; i < kCount; ++i) data.push_back(random_bytes(4000));
    // Half of the messages find a receive, and half wait for one.
    std::vector<void*> requests;
    for (size_t i = 0; i < kCount / 2; ++i) requests.push_back(net.recv(out[i]));
    for (const Bytes& one : data) requests.push_back(net.send(one));
    ASSERT_TRUE(net.finish(requests));
    net.from->close(net.sender);
    requests.clear();
    for (size_t i = kCount / 2; i < kCount; ++i) requests.push_back(net.recv(out[i]));
    Bytes never(1);
    void* const one_more = net.recv(never);
    ASSERT_TRUE(net.finish(requests));
    EXPECT_EQ(out, data);
    EXPECT_EQ(net.failure(one_more), TUTTI_REMOTE);
  }
}

TEST_P(Transports, APeerThatClosesIsTold) {
  const Pair net(settings());
  Bytes never(10);
  void* const receive = net.recv(never);
  net.from->close(net.sender);
  EXPECT_EQ(net.failure(receive), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("127.0.0.1"), HasSubstr("closed")));
}

TEST_P(Transports, ASenderLearnsThatTheReceiverHasClosed) {
  const Pair net(settings());
  const Bytes data = random_bytes(8 << 20);
  void* const send = net.send(data);  // without a receive, a long message stays where it is
  net.to->close(net.receiver);
  EXPECT_EQ(net.failure(send), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("127.0.0.1"));
  void* request = nullptr;
  EXPECT_EQ(net.from->ops().send(net.sender, data.data(), 1, 0, nullptr, &request), TUTTI_REMOTE);
  EXPECT_EQ(request, nullptr);
}

/// UCX cannot end a receive whose message is half there. If it does not complete in time, net-ucx gives up all
/// connections of the receiving side.
TEST_P(Transports, ClosingEndsWhatIsUnderWay) {
  for (const bool sender_first : {true, false}) {
    const Pair net(settings());
    const Bytes data = random_bytes(16 << 20);
    Bytes out(data.size());
    std::vector<void*> requests;
    for (int i = 0; i < 4; ++i) {
      requests.push_back(net.recv(out));
      requests.push_back(net.send(data));
    }
    for (int i = 0; i < 30; ++i) {
      bool ignored = false;
      if (net.test(requests[6], ignored) != TUTTI_OK || ignored) break;
    }
    const auto start = Clock::now();
    (sender_first ? net.from : net.to)->close(sender_first ? net.sender : net.receiver);
    (sender_first ? net.to : net.from)->close(sender_first ? net.receiver : net.sender);
    EXPECT_LT(Clock::now() - start, kLimit / 2);
    const Bytes before = out;
    for (int i = 0; i < 1000; ++i) net.progress();
    EXPECT_EQ(out, before);
  }
}

/// Sends without receives, and receives without sends, end with their connection; other connections go on.
TEST(Ucx, ClosingLeavesOtherConnectionsAlone) {
  for (const bool sender_first : {true, false}) {
    const Pair net;
    const auto [other_sender, other_receiver] = net.connect();
    const Bytes data = random_bytes(16 << 20);
    Bytes out(data.size(), 0);
    for (int i = 0; i < 4; ++i) net.send(data, 1), net.recv(out, 2);
    for (int i = 0; i < 100; ++i) net.progress();
    (sender_first ? net.from : net.to)->close(sender_first ? net.sender : net.receiver);
    (sender_first ? net.to : net.from)->close(sender_first ? net.receiver : net.sender);
    const Bytes small = random_bytes(1000), large = random_bytes(1 << 20);
    Bytes small_out(small.size()), large_out(large.size());
    ASSERT_TRUE(net.finish({net.send(other_sender, small, 0), net.recv(other_receiver, small_out, 0),
                            net.send(other_sender, large, 0), net.recv(other_receiver, large_out, 0)}))
        << plugin::take_failure_text();
    EXPECT_EQ(small_out, small);
    EXPECT_EQ(large_out, large);
    EXPECT_EQ(out, Bytes(data.size(), 0));
  }
}

TEST_P(Transports, AKilledPeerIsTold) {
  const auto [here, there] = [] {
    std::array<int, 2> ends{};
    test::require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "socketpair");
    return std::pair(base::Fd(ends[0]), base::Fd(ends[1]));
  }();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // the sender, until it is killed
    Side side(settings());
    tutti_net_handle to{};
    if (::recv(there.get(), &to, sizeof to, MSG_WAITALL) != sizeof to) std::_Exit(1);
    void *state = nullptr, *connection = nullptr, *request = nullptr;
    if (!until([&] { return side.connect(to, &state, &connection) == TUTTI_OK; })) std::_Exit(2);
    const Bytes data(100, 7);
    if (side.ops().send(connection, data.data(), data.size(), 0, nullptr, &request) != TUTTI_OK) std::_Exit(3);
    for (int32_t done = 0;;) {
      if (done == 0 && side.ops().test(request, &done, nullptr) != TUTTI_OK) std::_Exit(4);
      static_cast<void>(side.ops().arm(side.context()));
    }
  }
  Side side(settings());
  ASSERT_EQ(::send(here.get(), &side.handle(), sizeof(tutti_net_handle), 0),
            static_cast<ssize_t>(sizeof(tutti_net_handle)));
  void* connection = nullptr;
  ASSERT_TRUE(until([&] { return side.accept(&connection) == TUTTI_OK; }));
  Bytes out(100);
  const uint64_t bytes = out.size();
  const uint32_t tag = 0;
  void *address = out.data(), *none = nullptr, *first = nullptr, *second = nullptr;
  ASSERT_EQ(side.ops().recv(connection, 1, &address, &bytes, &tag, &none, &first), TUTTI_OK);
  int32_t done = 0;
  ASSERT_TRUE(until([&] { return side.ops().test(first, &done, nullptr) != TUTTI_OK || done != 0; }));
  EXPECT_EQ(out, Bytes(100, 7));
  ASSERT_EQ(side.ops().recv(connection, 1, &address, &bytes, &tag, &none, &second), TUTTI_OK);
  kill(child, SIGKILL);
  int32_t code = TUTTI_OK;
  ASSERT_TRUE(until([&] { return (code = side.ops().test(second, &done, nullptr)) != TUTTI_OK || done != 0; }));
  EXPECT_EQ(code, TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("127.0.0.1"), HasSubstr("ended")));
  waitpid(child, nullptr, 0);
}

TEST(Ucx, TagsKeepMessagesApart) {
  const Pair net;
  const Bytes first = random_bytes(100), second = random_bytes(200);
  Bytes a(100), b(200);
  void* const receive_a = net.recv(a, 1);
  void* const receive_b = net.recv(b, 2);
  ASSERT_TRUE(net.finish({receive_b, net.send(second, 2)}));  // while tag 1 has no message yet
  ASSERT_TRUE(net.finish({receive_a, net.send(first, 1)}));
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
}

TEST(Ucx, ConnectionsKeepMessagesApart) {
  const Pair net;
  const auto [other_sender, other_receiver] = net.connect();
  const Bytes first = random_bytes(100), second = random_bytes(100);
  Bytes a(100), b(100);
  ASSERT_TRUE(net.finish({net.send(other_sender, second, 0), net.recv(other_receiver, b, 0)}));
  ASSERT_TRUE(net.finish({net.recv(a), net.send(first)}));
  EXPECT_EQ(a, first);
  EXPECT_EQ(b, second);
}

TEST(Ucx, TooLongAMessageFailsItsReceiveAlone) {
  const Pair net;
  for (const size_t size : {100u, 300000u}) {
    for (const bool waits : {true, false}) {
      const Bytes data = random_bytes(size), next = random_bytes(30);
      Bytes small(50), next_out(30);
      void* receive = waits ? net.recv(small) : nullptr;
      std::vector<void*> sends = {net.send(data), net.send(next)};
      if (!waits) {  // the message is there before its receive
        for (int i = 0; i < 5000; ++i) net.progress();
        receive = net.recv(small);
      }
      EXPECT_EQ(net.failure(receive), TUTTI_MISMATCH);
      EXPECT_THAT(plugin::take_failure_text(),
                  AllOf(HasSubstr(std::to_string(size) + " bytes"), HasSubstr("50 bytes")));
      sends.push_back(net.recv(next_out));
      ASSERT_TRUE(net.finish(sends));
      EXPECT_EQ(next_out, next);
    }
  }
}

TEST(Ucx, SleepersAreWoken) {
  const Pair net;
  std::vector<std::pair<void*, void*>> connections = {{net.sender, net.receiver}};
  for (int i = 0; i < 4; ++i) connections.push_back(net.connect());
  int32_t fd = -1;
  ASSERT_EQ(net.to->ops().event_fd(net.to->context(), &fd), TUTTI_OK);
  constexpr size_t kMessages = 500;
  const auto connection_of = [&](size_t i) { return connections[i / 100]; };
  std::thread sending([&] {
    for (size_t i = 0; i < kMessages; ++i) {
      const Bytes data(i % 50 == 0 ? 200000 : 64, static_cast<uint8_t>(i));
      ASSERT_TRUE(net.finish({net.send(connection_of(i).first, data, 0)}));
    }
  });
  for (size_t i = 0; i < kMessages; ++i) {
    Bytes out(i % 50 == 0 ? 200000 : 64);
    void* const request = net.recv(connection_of(i).second, out, 0);
    for (bool done = false;;) {
      ASSERT_EQ(net.test(request, done), TUTTI_OK);
      if (done) break;
      const int32_t armed = net.to->ops().arm(net.to->context());
      if (armed == TUTTI_AGAIN) continue;
      ASSERT_EQ(armed, TUTTI_OK);
      pollfd ready{fd, POLLIN, 0};
      ASSERT_EQ(poll(&ready, 1, 20000), 1) << "a wake-up was lost before message " << i;
    }
    EXPECT_EQ(out, Bytes(out.size(), static_cast<uint8_t>(i)));
  }
  sending.join();
}

/// A connection from the side that accepts the others, to the side that makes them.
struct Reverse {
  explicit Reverse(const Pair& net) : net_(net) {
    void* state = nullptr;
    const bool made = until([&] {
      if (sender == nullptr) net.to->connect(net.from->handle(), &state, &sender);
      if (receiver == nullptr) net.from->accept(&receiver);
      return sender != nullptr && receiver != nullptr;
    });
    test::require(made, "the connection does not stand in time");
  }
  void* send(const Bytes& data) const {
    void* request = nullptr;
    EXPECT_EQ(net_.to->ops().send(sender, data.data(), data.size(), 0, nullptr, &request), TUTTI_OK);
    return request;
  }
  void* recv(Bytes& data) const {
    void *address = data.data(), *none = nullptr, *request = nullptr;
    const uint64_t bytes = data.size();
    const uint32_t tag = 0;
    EXPECT_EQ(net_.from->ops().recv(receiver, 1, &address, &bytes, &tag, &none, &request), TUTTI_OK);
    return request;
  }
  bool carries(size_t size) const {
    const Bytes data = random_bytes(size);
    Bytes out(size);
    return net_.finish({recv(out), send(data)}) && out == data;
  }

  const Pair& net_;
  void* sender = nullptr;
  void* receiver = nullptr;
};

/// Closing a direction takes none of the other's data, also data under way.
TEST_P(Transports, ClosingLeavesTheOtherDirection) {
  for (const bool forth_ends : {true, false}) {
    const Pair net(settings());
    const Reverse back(net);
    const Bytes data = random_bytes(3 << 20);
    Bytes out(data.size()), back_out(data.size());
    ASSERT_TRUE(net.finish({net.recv(out), net.send(data)}));
    void* const receive = forth_ends ? back.recv(back_out) : net.recv(out);
    void* const send = forth_ends ? back.send(data) : net.send(data);
    if (forth_ends) {
      net.from->close(net.sender);
      net.to->close(net.receiver);
    } else {
      net.to->close(back.sender);
      net.from->close(back.receiver);
    }
    ASSERT_TRUE(net.finish({receive, send})) << plugin::take_failure_text();
    EXPECT_EQ(forth_ends ? back_out : out, data);
    const auto [sender, receiver] = net.connect();  // over the sockets that the closed connection used
    const Bytes more = random_bytes(100000);
    Bytes more_out(more.size());
    ASSERT_TRUE(net.finish({net.recv(receiver, more_out, 0), net.send(sender, more, 0)}));
    EXPECT_EQ(more_out, more);
  }
}

/// Connected TCP sockets of this process.
size_t connected_sockets() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int fd = std::stoi(entry.path().filename());
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && peer.ss_family == AF_INET) ++count;
  }
  return count;
}

/// Two sockets for the line of a connection, and two for the data of both directions.
TEST(Ucx, BothDirectionsUseOneSocket) {
  const size_t before = connected_sockets();
  const Pair net;
  Bytes data = random_bytes(100), out(100);
  ASSERT_TRUE(net.finish({net.recv(out), net.send(data)}));
  EXPECT_EQ(connected_sockets() - before, 4u);
  const Reverse back(net);
  EXPECT_TRUE(back.carries(100));
  EXPECT_EQ(connected_sockets() - before, 6u);
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

TEST(Ucx, ClosedConnectionsLeaveNoDescriptors) {
  const Pair net;
  size_t after_first = 0;
  for (int i = 0; i < 100; ++i) {
    const auto [sender, receiver] = net.connect();
    for (const size_t size : {100, 1 << 20}) {
      const Bytes data = random_bytes(size);
      Bytes out(size);
      ASSERT_TRUE(net.finish({net.recv(receiver, out, 0), net.send(sender, data, 0)}));
      EXPECT_EQ(out, data);
    }
    net.from->close(sender);
    net.to->close(receiver);
    if (i == 9) after_first = open_descriptors();
  }
  EXPECT_LE(open_descriptors(), after_first + 20);
}

}  // namespace
}  // namespace tutti
