// SPDX-License-Identifier: Apache-2.0
// What the system refuses, and peers that die or talk nonsense. Each is a sentence with the reason and the remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/fd.h"
#include "net-ib/wire.h"
#include "rdma-vm/ib_network.h"
#include "tutti/sdk/handshake.h"

namespace tutti {
namespace {

using test::IbNetwork;
using test::kLimit;
using test::Pair;
using test::random_bytes;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// A lower limit of this process, until the end of the object. The hard limit stays.
class Limit {
 public:
  Limit(__rlimit_resource what, rlim_t value) : what_(what) {
    test::require(getrlimit(what, &before_) == 0, "getrlimit");
    const rlimit now{value, before_.rlim_max};
    test::require(setrlimit(what, &now) == 0, "setrlimit");
  }
  ~Limit() { setrlimit(what_, &before_); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  __rlimit_resource what_;
  rlimit before_{};
};

/// This thread does without CAP_IPC_LOCK, with which root may lock any amount of memory.
class WithoutLockCapability {
 public:
  WithoutLockCapability() {
    test::require(syscall(SYS_capget, &header_, before_) == 0, "capget");
    __user_cap_data_struct less[2] = {before_[0], before_[1]};
    less[0].effective &= ~(1u << CAP_IPC_LOCK);
    test::require(syscall(SYS_capset, &header_, less) == 0, "capset");
  }
  ~WithoutLockCapability() { syscall(SYS_capset, &header_, before_); }
  WithoutLockCapability(const WithoutLockCapability&) = delete;
  WithoutLockCapability& operator=(const WithoutLockCapability&) = delete;

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

TEST(IbLimits, TooLittleLockedMemory) {
  Pair net;
  std::vector<uint8_t> memory(4 << 20);
  void* registration = nullptr;
  const auto add = [&] {
    return net.ops().register_memory(net.sender(), memory.data(), memory.size(), TUTTI_MEMORY_HOST, &registration);
  };
  {
    const WithoutLockCapability unprivileged;
    const Limit limit(RLIMIT_MEMLOCK, 1 << 20);
    EXPECT_EQ(add(), TUTTI_SYSTEM);
    EXPECT_THAT(plugin::take_failure_text(),
                AllOf(HasSubstr("cannot register 4194304 bytes"), HasSubstr("Cannot allocate memory"),
                      HasSubstr("the limit of locked memory is 1024 KiB"), HasSubstr("ulimit -l")));
  }
  ASSERT_EQ(add(), TUTTI_OK) << "the limit is gone: " << plugin::take_failure_text();
  EXPECT_EQ(net.ops().deregister_memory(net.sender(), registration), TUTTI_OK);
}

/// The code of a connect, driven to its end together with accepts; the text of its failure.
std::string connect_text(IbNetwork& from, IbNetwork& to, int32_t& code) {
  void *connecting = nullptr, *accepting = nullptr, *sender = nullptr, *receiver = nullptr;
  const auto end = Clock::now() + kLimit;
  std::string text;
  for (code = TUTTI_AGAIN; code == TUTTI_AGAIN && Clock::now() < end;) {
    code = from.ops().connect(from.context(), 0, &to.handle(), &connecting, &sender);
    if (code != TUTTI_OK && code != TUTTI_AGAIN) text = plugin::take_failure_text();
    if (receiver == nullptr) to.ops().accept(to.listener(), &accepting, &receiver);
  }
  if (sender != nullptr) from.ops().close_connection(sender);
  if (receiver != nullptr) to.ops().close_connection(receiver);
  return text;
}

TEST(IbLimits, AConnectionWithoutLockedMemory) {
  IbNetwork from("rxe0"), to("rxe1");
  int32_t code = 0;
  {
    const WithoutLockCapability unprivileged;
    const Limit limit(RLIMIT_MEMLOCK, 8192);
    EXPECT_THAT(connect_text(from, to, code),
                AllOf(HasSubstr("the limit of locked memory is 8 KiB"), HasSubstr("ulimit -l")));
    EXPECT_EQ(code, TUTTI_SYSTEM);
  }
  connect_text(from, to, code);
  EXPECT_EQ(code, TUTTI_OK);
}

int lowest_free_descriptor() {
  const int fd = dup(0);
  close(fd);
  return fd;
}

/// With each number of free descriptors, opening works or fails in a sentence; nothing hangs.
TEST(IbLimits, TooFewDescriptors) {
  const auto attempt = []() -> std::string {
    auto plugin = IbNetwork::open("rxe0");
    if (!plugin.ok()) return plugin.status().to_string();
    const auto& ops = *(*plugin)->ops<tutti_network_ops>();
    void *context = nullptr, *listener = nullptr, *state = nullptr, *connection = nullptr;
    tutti_net_handle handle{};
    if (ops.create((*plugin)->self(), 1, &context) != TUTTI_OK) return plugin::take_failure_text();
    std::string text;
    if (ops.listen(context, 0, &handle, &listener) != TUTTI_OK) {
      text = plugin::take_failure_text();
    } else {
      const int32_t code = ops.connect(context, 0, &handle, &state, &connection);
      if (code != TUTTI_AGAIN) text = plugin::take_failure_text();
      if (state != nullptr) ops.cancel(state);
      ops.close_listener(listener);
    }
    ops.destroy(context);
    return text;
  };
  int refused = 0;
  std::string text = "not tried";
  for (int free = 0; free < 40 && !text.empty(); ++free) {
    const int lowest = lowest_free_descriptor();
    {
      const Limit limit(RLIMIT_NOFILE, static_cast<rlim_t>(lowest + free));
      text = attempt();
    }
    if (text.empty()) break;
    ++refused;
    EXPECT_THAT(
        text, AllOf(HasSubstr("Too many open files"), AnyOf(HasSubstr("limit of open files"), HasSubstr("ulimit -n"))))
        << "with " << free << " descriptors";
  }
  EXPECT_TRUE(text.empty()) << "40 descriptors are not enough: " << text;
  EXPECT_GE(refused, 4);
}

/// A process that accepts one connection, announces a receive, and is killed.
class Mortal {
 public:
  explicit Mortal(const std::string& device) {
    int pipes[2];
    test::require(pipe(pipes) == 0, "pipe");
    child_ = fork();
    test::require(child_ >= 0, "fork");
    if (child_ == 0) live(device, pipes[1]);
    close(pipes[1]);
    test::require(read(pipes[0], &handle_, sizeof handle_) == sizeof handle_, "the child does not listen");
    close(pipes[0]);
  }
  ~Mortal() { kill_now(); }
  Mortal(const Mortal&) = delete;
  Mortal& operator=(const Mortal&) = delete;
  const tutti_net_handle& handle() const { return handle_; }
  void kill_now() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(std::exchange(child_, 0), nullptr, 0);
  }

 private:
  [[noreturn]] static void live(const std::string& device, int out) {
    try {
      IbNetwork net(device);
      test::require(write(out, &net.handle(), sizeof net.handle()) == sizeof net.handle(), "write");
      void *state = nullptr, *receiver = nullptr, *request = nullptr;
      while (receiver == nullptr) net.ops().accept(net.listener(), &state, &receiver);
      test::Memory in(net.ops(), receiver, std::vector<uint8_t>(1000));
      for (;;) {
        if (request != nullptr) {
          int32_t done = 0;
          if (net.ops().test(request, &done, nullptr) != TUTTI_OK) std::_Exit(1);
          if (done != 0) request = nullptr;
          continue;
        }
        void* address = in.data().data();
        const uint64_t bytes = in.data().size();
        const uint32_t tag = 0;
        void* const registration = in.registration();
        net.ops().recv(receiver, 1, &address, &bytes, &tag, &registration, &request);
      }
    } catch (const std::exception&) {
    }
    std::_Exit(1);
  }

  pid_t child_ = 0;
  tutti_net_handle handle_{};
};

TEST(IbPeers, APeerThatDiesIsNamed) {
  Mortal peer("rxe1");
  IbNetwork net("rxe0");
  void *state = nullptr, *sender = nullptr;
  const auto end = Clock::now() + kLimit;
  while (sender == nullptr && Clock::now() < end)
    ASSERT_THAT(net.ops().connect(net.context(), 0, &peer.handle(), &state, &sender), AnyOf(TUTTI_OK, TUTTI_AGAIN));
  ASSERT_NE(sender, nullptr);
  auto out = std::make_unique<test::Memory>(net.ops(), sender, random_bytes(1000));
  int32_t code = TUTTI_OK;
  void* request = nullptr;
  for (int moved = 0; code == TUTTI_OK && Clock::now() < end;) {
    if (request == nullptr) {
      code = net.ops().send(sender, out->data().data(), 1000, 0, out->registration(), &request);
      continue;
    }
    int32_t done = 0;
    code = net.ops().test(request, &done, nullptr);
    if (done == 0) continue;
    request = nullptr;
    if (++moved == 20) peer.kill_now();
  }
  EXPECT_EQ(code, TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(),
              AllOf(HasSubstr("from 10.78.0.1 (rxe0) to 10.78.0.2 (rxe1)"),
                    AnyOf(HasSubstr("process"), HasSubstr("reset")), HasSubstr("log of that rank")));
  out.reset();
  net.ops().close_connection(sender);
}

/// Knows the secret, and sends rails of random bytes: another version, or a faulty one.
void say_nonsense(const tutti_net_handle& raw, IbNetwork& net) {
  net_ib::Handle handle;
  std::memcpy(&handle, raw.bytes, sizeof handle);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(handle.port);
  std::memcpy(&address.sin_addr, handle.ip.bytes.data() + 12, 4);
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << std::strerror(errno);
  const auto hear = [&](void* to, size_t bytes) {
    size_t got = 0;
    for (const auto end = Clock::now() + kLimit; got < bytes && Clock::now() < end;) {
      net.refuse_strays(1);
      const ssize_t part = recv(socket.get(), static_cast<char*>(to) + got, bytes - got, MSG_DONTWAIT);
      if (part == 0) return false;
      if (part > 0) got += static_cast<size_t>(part);
    }
    return got == bytes;
  };
  net_ib::Challenge challenge;
  ASSERT_TRUE(hear(&challenge, sizeof challenge));
  net_ib::Hello hello;
  const auto noise = random_bytes(sizeof hello.rails);
  std::memcpy(&hello.rails, noise.data(), noise.size());
  if (noise[0] % 2 == 0) hello.rails[0].count = 1 + noise[1] % 16;
  if (noise[2] % 2 == 0) hello.rails[0].link_layer = 2, hello.rails[0].gid_type = IBV_GID_TYPE_ROCE_V2;
  hello.proof =
      *sdk::prove(handle.secret, sdk::Side::kConnector, challenge.nonce, hello.nonce, net_ib::proved(hello.rails));
  ASSERT_EQ(send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
  net_ib::Welcome welcome;
  ASSERT_TRUE(hear(&welcome, sizeof welcome));
  const std::string refusal(welcome.refusal.data(), strnlen(welcome.refusal.data(), welcome.refusal.size()));
  if (welcome.rails[0].count == 0) {
    EXPECT_THAT(refusal, HasSubstr("the connection from"));
  }
  const uint8_t impossible = 0xff;
  send(socket.get(), &impossible, 1, MSG_NOSIGNAL);
  net.refuse_strays(1);
}

TEST(IbPeers, AFriendThatTalksNonsenseIsRefused) {
  IbNetwork net("rxe1");
  for (int i = 0; i < 40 && !testing::Test::HasFatalFailure(); ++i) say_nonsense(net.handle(), net);
  net.refuse_strays(1000);
  IbNetwork from("rxe0");
  int32_t code = 0;
  const std::string text = connect_text(from, net, code);
  EXPECT_EQ(code, TUTTI_OK) << text;
}

}  // namespace
}  // namespace tutti
