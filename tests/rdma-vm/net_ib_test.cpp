// SPDX-License-Identifier: Apache-2.0
// The ib network through its table alone, between the two ends of a cable of the emulated machine (README.md). Sender
// and receiver live in one process; both ends are pushed on by hand.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/fd.h"
#include "net-ib/wire.h"
#include "rdma-vm/ib_network.h"

namespace tutti {
namespace {

using test::IbNetwork;
using test::kLimit;
using test::Memory;
using test::Pair;
using test::random_bytes;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const IbNetwork::Settings kQuickToGiveUp = {{"settings.net.ib.timeout", "14"}, {"settings.net.ib.retry_count", "3"}};

TEST(Ib, EverySizeArrivesWhole) {
  for (const char* queue_pairs : {"1", "3"}) {
    Pair net(IbNetwork::Settings{{"settings.net.ib.queue_pairs", queue_pairs}, {"settings.net.ib.split_min", "4KiB"}});
    for (const size_t size : {0u, 1u, 63u, 220u, 221u, 4095u, 4097u, 65537u, 1u << 20, 3000001u}) {
      const auto data = random_bytes(size);
      const auto out = net.outgoing(data);
      const auto in = net.incoming(size + 3);
      void* const receive = net.recv(*in, 7);
      void* const send = net.send(*out, 7);
      uint64_t bytes = ~uint64_t{0};
      ASSERT_EQ(net.finish(send), TUTTI_OK) << size << " bytes: " << plugin::take_failure_text();
      ASSERT_EQ(net.finish(receive, &bytes), TUTTI_OK) << size << " bytes: " << plugin::take_failure_text();
      EXPECT_EQ(bytes, size);
      EXPECT_TRUE(std::equal(data.begin(), data.end(), in->data().begin())) << size;
      EXPECT_EQ(in->data()[size], 0xa5) << "wrote behind the message";
    }
  }
}

TEST(Ib, ManyInFlightArriveInOrder) {
  Pair net;
  constexpr uint32_t kMessages = 64;
  std::vector<std::unique_ptr<Memory>> out, in;
  std::vector<void*> requests;
  for (uint32_t i = 0; i < kMessages; ++i) {
    out.push_back(net.outgoing(random_bytes(1 + i * 777)));
    in.push_back(net.incoming(1 + i * 777));
  }
  for (uint32_t round = 0; round < 20; ++round) {
    requests.clear();
    for (uint32_t i = 0; i < kMessages; ++i) {
      requests.push_back(net.send(*out[i], 0));
      requests.push_back(net.recv(*in[i], 0));
      ASSERT_NE(requests[2 * i], nullptr);
      ASSERT_NE(requests[2 * i + 1], nullptr);
    }
    EXPECT_EQ(net.send(*out[0], 0), nullptr) << "more than can be outstanding";
    ASSERT_TRUE(net.finish_all(requests)) << plugin::take_failure_text();
    for (uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(in[i]->data(), out[i]->data()) << i;
  }
}

TEST(Ib, TagsAndGroupsMatch) {
  Pair net;
  const auto first = net.outgoing(random_bytes(100)), second = net.outgoing(random_bytes(200));
  const auto a = net.incoming(200), b = net.incoming(200), later = net.incoming(100);
  void* const addresses[] = {a->data().data(), b->data().data()};
  const uint64_t bytes[] = {200, 200};
  const uint32_t tags[] = {1, 2};
  void* const registrations[] = {a->registration(), b->registration()};
  void* group = nullptr;
  ASSERT_EQ(net.ops().recv(net.receiver(), 2, addresses, bytes, tags, registrations, &group), TUTTI_OK);
  // A message without a receive does not stop the messages with other tags.
  void* const waits = net.send(*first, 9);
  ASSERT_TRUE(net.finish_all({net.send(*second, 2), net.send(*first, 1)}));
  uint64_t got[2] = {0, 0};
  ASSERT_EQ(net.finish(group, got), TUTTI_OK);
  EXPECT_EQ(got[0], 100u);
  EXPECT_EQ(got[1], 200u);
  EXPECT_TRUE(std::equal(first->data().begin(), first->data().end(), a->data().begin()));
  EXPECT_EQ(b->data(), second->data());
  ASSERT_TRUE(net.finish_all({net.recv(*later, 9), waits}));
  EXPECT_EQ(later->data(), first->data());
}

TEST(Ib, TooLongAMessageFailsItsReceiveAlone) {
  Pair net;
  const auto long_one = net.outgoing(random_bytes(100)), short_one = net.outgoing(random_bytes(50));
  const auto small = net.incoming(50), next = net.incoming(50);
  void* const receive = net.recv(*small, 0);
  ASSERT_EQ(net.finish(net.send(*long_one, 0)), TUTTI_OK);
  EXPECT_EQ(net.finish(receive), TUTTI_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("100 bytes"), HasSubstr("50 bytes"), HasSubstr("rxe0")));
  EXPECT_EQ(small->data(), std::vector<uint8_t>(50, 0xa5));
  ASSERT_TRUE(net.finish_all({net.recv(*next, 0), net.send(*short_one, 0)}));
  EXPECT_EQ(next->data(), short_one->data());
}

TEST(Ib, WhatWasSentBeforeTheCloseArrives) {
  Pair net;
  const auto data = random_bytes(300000);
  auto out = net.outgoing(data);
  const auto in = net.incoming(300000), never = net.incoming(10);
  void* const first = net.recv(*in, 0);
  void* const second = net.recv(*never, 0);
  const auto end = Clock::now() + kLimit;
  void* const send = net.send(*out, 0);
  for (int32_t done = 0; done == 0 && Clock::now() < end;) ASSERT_EQ(net.ops().test(send, &done, nullptr), TUTTI_OK);
  out.reset();
  net.close_sender();
  EXPECT_EQ(net.finish(first), TUTTI_OK);
  EXPECT_EQ(in->data(), data);
  EXPECT_EQ(net.finish(second), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(),
              AllOf(HasSubstr("10.78.0.1 (rxe0) to 10.78.0.2 (rxe1)"), HasSubstr("closed")));
  void* request = nullptr;
  void* address = never->data().data();
  void* const registration = never->registration();
  const uint64_t bytes = 10;
  const uint32_t tag = 0;
  EXPECT_EQ(net.ops().recv(net.receiver(), 1, &address, &bytes, &tag, &registration, &request), TUTTI_REMOTE);
}

TEST(Ib, MemoryThatIsNotRegisteredIsRefused) {
  Pair net;
  std::vector<uint8_t> loose(1000);
  const auto known = net.outgoing(random_bytes(500));
  void* request = nullptr;
  EXPECT_EQ(net.ops().send(net.sender(), loose.data(), 1000, 0, nullptr, &request), TUTTI_INVALID_ARGUMENT);
  EXPECT_EQ(net.ops().send(net.sender(), known->data().data(), 501, 0, known->registration(), &request),
            TUTTI_INVALID_ARGUMENT);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("501 bytes"));
  EXPECT_EQ(request, nullptr);
  void* registration = nullptr;
  EXPECT_EQ(net.ops().register_memory(net.sender(), nullptr, 4096, TUTTI_MEMORY_HOST, &registration), TUTTI_SYSTEM);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("cannot register 4096 bytes"));
  EXPECT_EQ(net.ops().register_memory(net.sender(), loose.data(), 1000, TUTTI_MEMORY_CUDA, &registration),
            TUTTI_UNSUPPORTED);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("nvidia_peermem"));
  EXPECT_NE(net.ops().register_dmabuf(net.sender(), loose.data(), 1000, 0, -1, &registration), TUTTI_OK);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("dmabuf"));
}

TEST(Ib, RegistrationsAreSharedAndEnd) {
  Pair net;
  std::vector<uint8_t> memory(8192);
  void *whole = nullptr, *part = nullptr, *again = nullptr;
  const auto add = [&](size_t offset, size_t bytes, void** out) {
    return net.ops().register_memory(net.sender(), memory.data() + offset, bytes, TUTTI_MEMORY_HOST, out);
  };
  ASSERT_EQ(add(0, 8192, &whole), TUTTI_OK);
  ASSERT_EQ(add(100, 1000, &part), TUTTI_OK);
  EXPECT_EQ(net.ops().deregister_memory(net.sender(), whole), TUTTI_OK);
  void* request = nullptr;
  EXPECT_EQ(net.ops().send(net.sender(), memory.data(), 8192, 0, part, &request), TUTTI_OK) << "still in use";
  EXPECT_EQ(net.ops().deregister_memory(net.sender(), part), TUTTI_OK);
  ASSERT_EQ(add(100, 1000, &again), TUTTI_OK);
  EXPECT_EQ(net.ops().send(net.sender(), memory.data(), 8192, 0, again, &request), TUTTI_INVALID_ARGUMENT)
      << "the first registration has gone";
  EXPECT_EQ(net.ops().deregister_memory(net.sender(), again), TUTTI_OK);
}

TEST(Ib, FlushReadsWhatHasArrived) {
  for (const char* mode : {"always", "auto"}) {
    Pair net(IbNetwork::Settings{{"settings.net.ib.flush", mode}});
    const auto in = net.incoming(5000);
    for (int round = 0; round < 100; ++round) {
      void* const address = in->data().data();
      const uint64_t bytes = in->data().size();
      void* const registration = in->registration();
      void* request = nullptr;
      ASSERT_EQ(net.ops().flush(net.receiver(), 1, &address, &bytes, &registration, &request), TUTTI_OK)
          << plugin::take_failure_text();
      ASSERT_EQ(request != nullptr, std::string(mode) == "always") << "memory of the host needs no flush";
      if (request == nullptr) continue;
      ASSERT_EQ(net.finish(request), TUTTI_OK) << plugin::take_failure_text();
    }
  }
}

base::Fd dial(const tutti_net_handle& raw) {
  net_ib::Handle handle;
  std::memcpy(&handle, raw.bytes, sizeof handle);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(handle.port);
  std::memcpy(&address.sin_addr, handle.ip.bytes.data() + 12, 4);
  base::Fd out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(out.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << std::strerror(errno);
  return out;
}

TEST(Ib, StrangersChangeNothing) {
  IbNetwork net("rxe1");
  std::vector<base::Fd> strangers;
  for (int i = 0; i < 300; ++i) {
    base::Fd& stranger = strangers.emplace_back(dial(net.handle()));
    auto garbage = random_bytes(static_cast<size_t>(i) * 3 % 700);
    if (i % 2 == 0 && garbage.size() >= 8) std::memcpy(garbage.data(), &net_ib::kMagic, 8);
    ASSERT_GE(send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
    if (i % 3 == 0) stranger.reset();
    net.refuse_strays(1);
  }
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < end) net.refuse_strays(1);
  IbNetwork friendly("rxe0");
  void *connecting = nullptr, *accepting = nullptr, *sender = nullptr, *receiver = nullptr;
  const auto limit = Clock::now() + kLimit;
  while ((sender == nullptr || receiver == nullptr) && Clock::now() < limit) {
    if (sender == nullptr) friendly.ops().connect(friendly.context(), 0, &net.handle(), &connecting, &sender);
    if (receiver == nullptr) net.ops().accept(net.listener(), &accepting, &receiver);
  }
  ASSERT_NE(sender, nullptr);
  ASSERT_NE(receiver, nullptr);
  net.ops().close_connection(sender);
  net.ops().close_connection(receiver);
}

int32_t connect_code(IbNetwork& net, const tutti_net_handle& handle) {
  void *state = nullptr, *connection = nullptr;
  int32_t code = TUTTI_AGAIN;
  const auto end = Clock::now() + kLimit;
  while (code == TUTTI_AGAIN && Clock::now() < end)
    code = net.ops().connect(net.context(), 0, &handle, &state, &connection);
  return code;
}

TEST(Ib, WrongPeersAreNamed) {
  IbNetwork net("rxe0");
  EXPECT_EQ(connect_code(net, tutti_net_handle{}), TUTTI_INVALID_ARGUMENT);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("same network plugin"));
  // A different program has the port.
  base::Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  ASSERT_EQ(inet_pton(AF_INET, "10.78.0.2", &address.sin_addr), 1);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener.get(), 5), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  net_ib::Handle handle;
  handle.ip = net_ib::Ip::from(reinterpret_cast<sockaddr&>(address));
  handle.port = ntohs(address.sin_port);
  tutti_net_handle raw{};
  std::memcpy(raw.bytes, &handle, sizeof handle);
  const auto answer_with = [&](const void* bytes, size_t size) {
    std::thread other([&] {
      const base::Fd guest(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      EXPECT_EQ(send(guest.get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
      uint8_t byte = 0;
      while (recv(guest.get(), &byte, 1, 0) > 0) continue;  // until the plugin closes the connection
    });
    const int32_t code = connect_code(net, raw);
    other.join();
    return code;
  };
  EXPECT_EQ(answer_with("HTTP/1.1 400 Bad Request\r\n\r\n", 28), TUTTI_VERSION_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("does not speak the protocol"));
  std::vector<uint8_t> impostor(sizeof(net_ib::Challenge) + sizeof(net_ib::Welcome));
  std::memcpy(impostor.data(), &net_ib::kMagic, 8);
  EXPECT_EQ(answer_with(impostor.data(), impostor.size()), TUTTI_MISMATCH);
  EXPECT_THAT(plugin::take_failure_text(), HasSubstr("cannot prove"));
  listener.reset();
  EXPECT_EQ(connect_code(net, raw), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("10.78.0.2"), HasSubstr("Connection refused")));
}

TEST(Ib, SettingsThatFitNoPortAreNamed) {
  const auto refusal = [](const std::string& device, const IbNetwork::Settings& settings) {
    auto plugin = IbNetwork::open(device, settings);
    return plugin.ok() ? "opened" : plugin.status().to_string();
  };
  EXPECT_THAT(refusal("mlx5_0", {}), AllOf(HasSubstr("rxe0:1 is excluded"), HasSubstr("settings.net.ib.devices")));
  EXPECT_THAT(refusal("rxe0", {{"settings.net.ib.subnet", "10.99.0.0/16"}}), HasSubstr("10.78.0.1 (GID"));
  EXPECT_THAT(refusal("rxe0", {{"settings.net.ib.subnet", "10.99"}}), HasSubstr("write it like 10.0.0.0/8"));
  EXPECT_THAT(refusal("rxe0", {{"settings.net.ib.roce", "v3"}}), HasSubstr("allowed: auto, v1, v2"));
  EXPECT_THAT(refusal("rxe0", {{"settings.net.ib.exchange", "eth9"}}), HasSubstr("`ip address`"));
}

TEST(Ib, TheFamilyChoosesTheGid) {
  Pair net(IbNetwork::Settings{{"settings.net.ib.family", "ipv6"}});
  const auto out = net.outgoing(random_bytes(1000));
  const auto in = net.incoming(1000);
  ASSERT_TRUE(net.finish_all({net.recv(*in, 0), net.send(*out, 0)})) << plugin::take_failure_text();
  EXPECT_EQ(in->data(), out->data());
}

TEST(Ib, SleepersAreWoken) {
  Pair net;
  int32_t fd = -1;
  ASSERT_EQ(net.ops().event_fd(net.to().context(), &fd), TUTTI_OK);
  constexpr int kMessages = 300;
  const auto out = net.outgoing(random_bytes(64));
  const auto in = net.incoming(64);
  std::thread sending([&] {
    for (int i = 0; i < kMessages; ++i) {
      out->data()[0] = static_cast<uint8_t>(i);
      ASSERT_EQ(net.finish(net.send(*out, 0)), TUTTI_OK);
    }
  });
  for (int i = 0; i < kMessages; ++i) {
    void* const request = net.recv(*in, 0);
    for (;;) {
      int32_t done = 0;
      ASSERT_EQ(net.ops().test(request, &done, nullptr), TUTTI_OK);
      if (done != 0) break;
      if (net.ops().arm(net.to().context()) == TUTTI_AGAIN) continue;
      pollfd ready{fd, POLLIN, 0};
      ASSERT_EQ(poll(&ready, 1, 20000), 1) << "a wake-up was lost before message " << i;
    }
    EXPECT_EQ(in->data()[0], static_cast<uint8_t>(i));
  }
  sending.join();
}

/// Last: the cable's addresses come back, but IPv6 takes a while.
TEST(IbFailure, ADownedPortBreaksTheConnectionInASentence) {
  Pair net(kQuickToGiveUp);
  const auto out = net.outgoing(random_bytes(1 << 20));
  const auto in = net.incoming(1 << 20);
  net.recv(*in, 0);
  ASSERT_EQ(std::system("ip link set rdma1 down"), 0);
  EXPECT_EQ(net.finish(net.send(*out, 0)), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(),
              AllOf(HasSubstr("from 10.78.0.1 (rxe0) to 10.78.0.2 (rxe1)"), HasSubstr("port 1 of rxe0 is down"),
                    HasSubstr("acknowledged nothing"), HasSubstr("check cables"), HasSubstr("retry")));
  void* request = nullptr;
  EXPECT_EQ(net.ops().send(net.sender(), out->data().data(), 10, 0, out->registration(), &request), TUTTI_REMOTE)
      << "each later post fails, too";
  ASSERT_EQ(std::system("ip link set rdma1 up && ip route replace 10.78.0.0/24 dev rdma1 table 102"), 0);
}

}  // namespace
}  // namespace tutti
