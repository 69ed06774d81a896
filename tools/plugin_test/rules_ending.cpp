// SPDX-License-Identifier: Apache-2.0
// Rules about the end of a connection, and about a peer that is slow, stops or dies.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint64_t kBytes = 1024;
constexpr uint64_t kMessages = 32;

/// Waits until a request fails, which it must do with TUTTI_REMOTE.
void expect_broken(Side& side, void* request, const std::string& what) {
  side.wait(fmt::format("end of {}, although the peer has ended the connection", what), [&] {
    const Outcome outcome = side.attempt_test(request);
    if (outcome.done && outcome.code == TUTTI_OK) side.violate(what + " completes without a message");
    if (outcome.code == TUTTI_OK || outcome.code == TUTTI_AGAIN) return false;
    if (outcome.code == TUTTI_REMOTE) return true;
    side.violate(fmt::format("{} fails with code {} instead of TUTTI_REMOTE: {}", what, outcome.code, outcome.text));
  });
}

void test_data_before_end(Side& side) {
  void* const connection = side.link(0);
  {
    Buffer buffer(side, connection, (kMessages + 1) * kBytes);
    std::vector<void*> requests;
    if (!side.is_first()) {
      for (uint64_t i = 0; i <= kMessages; ++i) requests.push_back(buffer.recv(i * kBytes, kBytes));
    }
    side.meet();
    if (side.is_first()) {
      for (uint64_t i = 0; i < kMessages; ++i) {
        fill(buffer.span(i * kBytes, kBytes), i);
        requests.push_back(buffer.send(i * kBytes, kBytes));
      }
      for (void* request : requests) side.finish(request, "end of a send");
    }
    if (!side.is_first()) {
      side.meet();  // the first side has closed
      for (uint64_t i = 0; i < kMessages; ++i) {
        const std::string name = fmt::format("message {} of {}, sent before the end of the connection", i, kMessages);
        uint64_t bytes = 0;
        side.wait(name, [&] {
          const Outcome outcome = side.attempt_test(requests[i], &bytes);
          if (outcome.code == TUTTI_OK || outcome.code == TUTTI_AGAIN) return outcome.done;
          side.violate(fmt::format("{} is lost: {}", name, outcome.text));
        });
        if (const std::string text = difference(buffer.span(i * kBytes, kBytes), i); !text.empty()) {
          side.violate(fmt::format("{}: {}", name, text));
        }
      }
      expect_broken(side, requests.back(), "a receive after the last message");
    }
  }
  if (!side.is_first()) return;
  side.close(connection);
  side.meet();
}

/// The other side closes: outstanding receives and later posts fail.
void test_peer_closes(Side& side) {
  for (const uint32_t sender : {0u, 1u}) {
    void* const connection = side.link(sender);
    if (!side.is_first()) {
      side.meet();
      side.close(connection);
    } else {
      Buffer buffer(side, connection, kBytes);
      void* const receive = sender == 1 ? buffer.recv(0, kBytes) : nullptr;
      side.meet();
      if (receive != nullptr) expect_broken(side, receive, "a receive");
      side.wait("failure of posts on a connection that the peer has closed", [&] {
        void* request = nullptr;
        void* address = buffer.at(0);
        const uint32_t tag = 0;
        void* registration = buffer.registration();
        const Outcome posted = side.attempt(sender == 0 ? Entry::kSend : Entry::kRecv, [&] {
          return sender == 0 ? side.ops().send(connection, address, kBytes, tag, registration, &request)
                             : side.ops().recv(connection, 1, &address, &kBytes, &tag, &registration, &request);
        });
        if (posted.code == TUTTI_REMOTE) return true;
        if (request == nullptr) return false;
        const Outcome tested = side.attempt_test(request);
        return tested.code == TUTTI_REMOTE;
      });
    }
    side.meet();
  }
}

/// After close, the plugin does not write into the buffers of receives.
void test_close_receives(Side& side) {
  void* const connection = side.link(0);
  std::vector<uint8_t> memory(TUTTI_NET_MIN_REQUESTS * kBytes, 0xA5);
  void* const registration = side.register_memory(connection, memory.data(), memory.size());
  if (!side.is_first()) {
    for (uint64_t i = 0; i < TUTTI_NET_MIN_REQUESTS; ++i) {
      side.recv(connection, memory.data() + i * kBytes, kBytes, registration);
    }
    side.deregister_memory(connection, registration);
    side.close(connection);
    side.meet();
    side.meet();  // the first side has sent; this side accepted meanwhile
    for (int i = 0; i < 50; ++i) side.accept_guests();
    for (size_t i = 0; i < memory.size(); ++i) {
      if (memory[i] != 0xA5) side.violate(fmt::format("byte {} of a receive is written after close_connection", i));
    }
    return;
  }
  side.meet();
  fill(memory, side.options().seed);
  for (uint64_t i = 0; i < 16; ++i) {
    void* request = nullptr;
    const Outcome posted = side.attempt(
        Entry::kSend, [&] { return side.ops().send(connection, memory.data(), kBytes, 0, registration, &request); });
    if (request != nullptr && posted.code == TUTTI_OK) side.attempt_test(request);
  }
  side.deregister_memory(connection, registration);
  side.meet();
}

/// After close, the plugin does not read the buffers of sends. The first side overwrites the buffers, and the second
/// side then receives.
void test_close_sends(Side& side) {
  constexpr uint64_t kCount = 16;
  const uint64_t large = std::min<uint64_t>(256 * 1024, side.properties().max_message_bytes);
  void* const connection = side.link(0);
  std::vector<uint8_t> memory(large * kCount);
  const auto message = [&](uint64_t i) { return std::span(memory).subspan(i * large, large); };
  void* const registration = side.register_memory(connection, memory.data(), memory.size());
  std::vector<void*> receives;
  if (side.is_first()) {
    for (uint64_t i = 0; i < kCount; ++i) {
      fill(message(i), i);
      void* request = nullptr;
      side.call(Entry::kSend,
                [&] { return side.ops().send(connection, message(i).data(), large, 0, registration, &request); });
    }
    side.deregister_memory(connection, registration);
    side.close(connection);
    std::fill(memory.begin(), memory.end(), uint8_t{0x5A});
    side.meet();
  } else {
    side.meet();
    for (uint64_t i = 0; i < kCount; ++i) {
      void* request = nullptr;
      void* address = message(i).data();
      void* handle = registration;
      const uint32_t tag = 0;
      const Outcome posted = side.attempt(
          Entry::kRecv, [&] { return side.ops().recv(connection, 1, &address, &large, &tag, &handle, &request); });
      if (posted.code != TUTTI_OK || request == nullptr) break;
      receives.push_back(request);
    }
    for (uint64_t i = 0; i < receives.size(); ++i) {
      Outcome outcome;
      const bool ended = side.wait_for("message whose sender has closed", 1, [&] {
        outcome = side.attempt_test(receives[i]);
        return outcome.done || (outcome.code != TUTTI_OK && outcome.code != TUTTI_AGAIN);
      });
      if (!ended || outcome.code != TUTTI_OK) break;
      const std::string text = difference(message(i), i);
      if (!text.empty()) side.violate(fmt::format("message {} was read after close_connection: {}", i, text));
    }
    side.deregister_memory(connection, registration);
    side.close(connection);  // receives that are not done end before their memory
  }
  side.meet();  // the first side accepts while it waits
}

void rest(int64_t ms) {
  const timespec time{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&time, nullptr);
}

/// The first side sends 8 messages of up to 1 MiB, while the second side rests or its process is stopped.
void send_to_slow_peer(Side& side, const std::function<void()>& begin, const std::function<void()>& end) {
  constexpr uint64_t kCount = 8;
  const uint64_t large = std::min<uint64_t>(1 << 20, side.properties().max_message_bytes);
  void* const connection = side.link(0);
  Buffer buffer(side, connection, large * kCount);
  std::vector<void*> requests;
  if (!side.is_first()) {
    for (uint64_t i = 0; i < kCount; ++i) requests.push_back(buffer.recv(i * large, large));
    begin();
    end();
  } else {
    begin();
    for (uint64_t i = 0; i < kCount; ++i) {
      fill(buffer.span(i * large, large), i);
      requests.push_back(buffer.send(i * large, large));
      side.test(requests[i]) ? requests[i] = nullptr : nullptr;
    }
    const int64_t until = now_ns() + 300'000'000;
    for (uint64_t i = 0; now_ns() < until; ++i) {
      void*& request = requests[i % kCount];
      if (request != nullptr && side.test(request)) request = nullptr;
      rest(1);
    }
    end();
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    if (requests[i] == nullptr) continue;
    side.finish(requests[i], fmt::format("message {} of {} to a slow peer", i, kCount));
    if (side.is_first()) continue;
    const std::string text = difference(buffer.span(i * large, large), i);
    if (!text.empty()) side.violate(fmt::format("message {} to a slow peer: {}", i, text));
  }
  side.meet();
}

void test_slow_peer(Side& side) {
  send_to_slow_peer(
      side, [&] { side.meet(); }, [&] { side.is_first() ? void() : rest(300); });
}

/// A stop that is shorter than timeouts.peer_loss ends no connection, and blocks no entry of the other side.
void test_stopped_peer(Side& side) {
  pid_t peer = 0;
  if (!side.is_first())
    side.tell(getpid());
  else
    peer = side.hear_as<pid_t>();
  side.calls().measure(true);
  send_to_slow_peer(
      side,
      [&] {
        side.meet();
        if (side.is_first()) kill(peer, SIGSTOP);
      },
      [&] {
        if (side.is_first()) kill(peer, SIGCONT);
      });
  if (!side.is_first()) return;
  for (const Entry entry : {Entry::kSend, Entry::kTest, Entry::kAccept}) {
    const float blocked = side.calls().timing(entry).longest_blocked_us;
    if (blocked > 100'000) {
      side.violate(
          fmt::format("entry '{}' slept for {:.0f} ms while the peer was stopped", to_string(entry), blocked * 1e-3));
    }
  }
}

void test_killed_peer(Side& side) {
  void* const out = side.link(0);
  void* const in = side.link(1);
  side.meet();
  if (!side.is_first()) raise(SIGKILL);
  Buffer to(side, out, kBytes), from(side, in, kBytes);
  expect_broken(side, from.recv(0, kBytes), "a receive from a killed process");
  side.wait("failure of sends to a killed process", [&] {
    void* request = nullptr;
    const Outcome posted = side.attempt(
        Entry::kSend, [&] { return side.ops().send(out, to.at(0), kBytes, 0, to.registration(), &request); });
    if (posted.code == TUTTI_REMOTE) return true;
    return request != nullptr && side.attempt_test(request).code == TUTTI_REMOTE;
  });
}

constexpr std::array kRules = {
    rule(28, test_data_before_end),       rule(29, test_peer_closes), rule(30, test_close_receives),
    rule(31, test_close_sends),           rule(32, test_slow_peer),   rule(33, test_stopped_peer, 20, true),
    rule(34, test_killed_peer, 20, true),
};

}  // namespace

std::span<const Rule> ending_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
