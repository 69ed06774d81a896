// SPDX-License-Identifier: Apache-2.0
// Rules about making connections.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>

#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint32_t kMany = 16;  // connections in each direction
constexpr int kAborts = 16;

void test_connects(Side& side) {
  for (uint32_t i = 0; i < 4; ++i) side.link(i % 2);
}

/// connect and accept while nothing answers: the other side's thread waits at the meeting.
void test_does_not_block(Side& side) {
  side.calls().measure(true);
  for (uint32_t i = 0; i < 6; ++i) side.link(i % 2);
  for (const Entry entry : {Entry::kConnect, Entry::kAccept}) {
    const float blocked = side.calls().timing(entry).longest_blocked_us;
    if (blocked < 50'000) continue;
    side.violate(fmt::format("entry '{}' slept for {:.0f} ms instead of returning TUTTI_AGAIN", to_string(entry),
                             blocked * 1e-3));
  }
}

/// Each connection carries its own number: no message comes on a different connection.
void test_many(Side& side) {
  const uint32_t limit = side.properties().max_connections;
  const uint32_t each = limit == 0 ? kMany : std::min(kMany, limit / 2);
  std::vector<void*> out, in;
  for (uint32_t i = 0; i < 2 * each; ++i) {
    const uint32_t sender = i % 2;
    (sender == side.options().role ? out : in).push_back(side.link(sender));
  }
  std::vector<uint64_t> sent(each), got(each);
  std::vector<void*> sends, receives, out_regions, in_regions;
  for (uint32_t i = 0; i < each; ++i) {
    in_regions.push_back(side.register_memory(in[i], &got[i], sizeof got[i]));
    receives.push_back(side.recv(in[i], &got[i], sizeof got[i], in_regions[i]));
  }
  for (uint32_t i = 0; i < each; ++i) {
    sent[i] = 1000 + i;
    out_regions.push_back(side.register_memory(out[i], &sent[i], sizeof sent[i]));
    sends.push_back(side.send(out[i], &sent[i], sizeof sent[i], out_regions[i]));
  }
  for (uint32_t i = each; i-- > 0;) {
    // A plugin may move a send only while that send is tested, and the other side waits for it.
    bool is_received = false, is_sent = false;
    side.wait(fmt::format("message on connection {} of {}, or end of its send", i, each), [&] {
      is_received = is_received || side.test(receives[i]);
      is_sent = is_sent || side.test(sends[i]);
      return is_received && is_sent;
    });
    if (got[i] != 1000 + i) side.violate(fmt::format("connection {} delivers the message {}", i, got[i]));
    side.deregister_memory(in[i], in_regions[i]);
    side.deregister_memory(out[i], out_regions[i]);
  }
  side.meet();
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

void abort_connects(Side& side, int times) {
  for (int i = 0; i < times; ++i) {
    void *state = nullptr, *connection = nullptr;
    const int32_t code = side.call(Entry::kConnect, [&] {
      return side.ops().connect(side.context(), side.options().device, &side.peer_handle(), &state, &connection);
    });
    if (connection != nullptr) {
      side.call_void(Entry::kCloseConnection, [&] { side.ops().close_connection(connection); });
    } else if (code == TUTTI_AGAIN && state != nullptr) {
      side.call_void(Entry::kCancel, [&] { side.ops().cancel(state); });
    }
  }
}

/// The other side accepts meanwhile, so that connections are given up in several states.
void test_abort(Side& side) {
  side.tolerate_guests();
  side.link(0);  // descriptors that a plugin keeps are there now
  size_t before = 0;
  if (side.is_first()) {
    abort_connects(side, 2);
    before = open_descriptors();
    abort_connects(side, kAborts);
  }
  side.meet();
  if (side.is_first() && side.options().where != Where::kOneProcess) {
    const size_t after = open_descriptors();
    if (after >= before + kAborts / 2) {
      side.violate(fmt::format("{} connects were given up, and {} descriptors stay open", kAborts, after - before));
    }
  }
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 64);
  fill(buffer.span(0, 64), side.is_first() ? 1 : 2);
  side.finish(side.is_first() ? buffer.send(0, 64) : buffer.recv(0, 64), "message after connects were given up");
  if (const std::string text = difference(buffer.span(0, 64), 1); !text.empty()) side.violate(text);
  side.meet();
}

/// A socket that listens.
struct Listening {
  int type = 0;  ///< SOCK_STREAM or SOCK_SEQPACKET
  sockaddr_storage address{};
  socklen_t length = sizeof address;
};

/// The sockets of this process that listen.
std::vector<Listening> listening_sockets() {
  std::vector<Listening> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    socklen_t size = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    Listening one;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &one.type, &size) != 0) continue;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&one.address), &one.length) == 0) all.push_back(one);
  }
  return all;
}

/// Strangers that send nothing, few bytes or many bytes, and then stay or go.
std::vector<base::Fd> send_strangers(Side& side) {
  std::vector<base::Fd> staying;
  for (const auto& [type, address, length] : listening_sockets()) {
    for (const size_t bytes : {0, 1, 16, 4000}) {
      for (const bool stays : {true, false}) {
        base::Fd stranger(socket(address.ss_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        const int code = connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address), length);
        if (code != 0 && errno != EINPROGRESS) continue;
        std::vector<uint8_t> garbage(bytes);
        fill(garbage, side.random()());
        side.accept_guests();
        [[maybe_unused]] const ssize_t sent = send(stranger.get(), garbage.data(), bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (stays) staying.push_back(std::move(stranger));
      }
    }
  }
  return staying;
}

void test_strangers(Side& side) {
  side.tolerate_guests();
  std::vector<base::Fd> strangers;
  if (!side.is_first()) strangers = send_strangers(side);
  const bool found = side.is_first() ? side.hear_as<bool>() : (side.tell(!strangers.empty()), !strangers.empty());
  if (!found) side.skip("no socket listens, so the rule cannot act as a stranger");
  for (int i = 0; i < 3; ++i) {
    const int64_t begin = now_ns();
    void* const connection = side.link(0);
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    if (seconds > 2) side.violate(fmt::format("strangers delay a connection by {:.1f} s", seconds));
    Buffer buffer(side, connection, 64);
    fill(buffer.span(0, 64), side.is_first() ? 1 : 2);
    side.finish(side.is_first() ? buffer.send(0, 64) : buffer.recv(0, 64), "message after strangers came");
    if (const std::string text = difference(buffer.span(0, 64), 1); !text.empty()) side.violate(text);
    side.meet();
  }
}

constexpr std::array kRules = {
    rule(8, test_connects), rule(9, test_does_not_block), rule(10, test_many),
    rule(11, test_abort),   rule(12, test_strangers),
};

}  // namespace

std::span<const Rule> connection_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
