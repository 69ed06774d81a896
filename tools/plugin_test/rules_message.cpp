// SPDX-License-Identifier: Apache-2.0
// Rules about single messages and their order: the first side sends, the second side receives.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint64_t kMessages = 400;
constexpr uint64_t kWindow = 16;
constexpr uint64_t kRoom = 4096;

/// Checks a message: its length, its bytes, and the bytes behind it.
void check(Side& side, Buffer& buffer, uint64_t offset, uint64_t got, uint64_t bytes, uint64_t room, uint64_t seed,
           const std::string& name) {
  if (got != bytes) side.violate(fmt::format("{} is reported to have {} bytes, but has {}", name, got, bytes));
  std::string text = difference(buffer.span(offset, bytes), seed);
  if (text.empty()) {
    text = buffer.touched(static_cast<int64_t>(offset + bytes), static_cast<int64_t>(offset + room));
  }
  if (!text.empty()) side.violate(fmt::format("{}: {}", name, text));
}

struct Stream {
  uint64_t count = kMessages;
  uint64_t window = kWindow;
  uint64_t room = kRoom;
  std::function<uint64_t(uint64_t)> bytes;  ///< bytes of a message, by number
};

void send_stream(Side& side, void* connection, const Stream& stream) {
  Buffer buffer(side, connection, stream.window * stream.room);
  std::deque<void*> requests;
  const auto finish_oldest = [&] {
    side.finish(requests.front(), "end of a send");
    requests.pop_front();
  };
  for (uint64_t i = 0; i < stream.count; ++i) {
    if (requests.size() == stream.window) finish_oldest();
    const uint64_t offset = i % stream.window * stream.room;
    fill(buffer.span(offset, stream.room), i);
    requests.push_back(buffer.send(offset, stream.bytes(i)));
  }
  while (!requests.empty()) finish_oldest();
  side.meet();
}

void receive_stream(Side& side, void* connection, const Stream& stream) {
  Buffer buffer(side, connection, stream.window * stream.room);
  std::vector<void*> requests(stream.window);
  const auto post = [&](uint64_t i) {
    const uint64_t offset = i % stream.window * stream.room;
    const std::span<uint8_t> slot = buffer.span(offset, stream.room);
    std::fill(slot.begin(), slot.end(), uint8_t{0xA5});
    requests[i % stream.window] = buffer.recv(offset, stream.room);
  };
  for (uint64_t i = 0; i < std::min(stream.window, stream.count); ++i) post(i);
  for (uint64_t i = 0; i < stream.count; ++i) {
    const std::string name = fmt::format("message {} of {}", i, stream.count);
    const uint64_t got = side.finish(requests[i % stream.window], name);
    check(side, buffer, i % stream.window * stream.room, got, stream.bytes(i), stream.room, i, name);
    if (i + stream.window < stream.count) post(i + stream.window);
  }
  side.meet();
}

void run_stream(Side& side, const Stream& stream) {
  void* const connection = side.link(0);
  side.is_first() ? send_stream(side, connection, stream) : receive_stream(side, connection, stream);
}

/// A length of message `i` that both sides know.
uint64_t random_length(uint64_t seed, uint64_t i, uint64_t most) {
  std::mt19937_64 random(seed + i);
  return std::uniform_int_distribution<uint64_t>(1, most)(random);
}

void test_order(Side& side) {
  run_stream(side, {.bytes = [](uint64_t) { return uint64_t{64}; }});
}

void test_lengths(Side& side) {
  const uint64_t seed = side.options().seed;
  run_stream(side, {.bytes = [seed](uint64_t i) { return random_length(seed, i, kRoom - 1); }});
}

void test_small(Side& side) {
  run_stream(side, {.count = 64, .bytes = [](uint64_t i) { return i % 2; }});
}

void test_large(Side& side) {
  const uint64_t most = std::min(side.options().large_bytes, side.properties().max_message_bytes);
  for (const uint64_t bytes : {std::min(uint64_t{1} << 20, most), most}) {
    void* const connection = side.link(0);
    Buffer buffer(side, connection, bytes);
    if (side.is_first()) fill(buffer.span(0, bytes), bytes);
    void* const request = side.is_first() ? buffer.send(0, bytes) : buffer.recv(0, bytes);
    uint64_t got = 0;
    const std::string name = fmt::format("message of {} bytes", bytes);
    if (!side.wait_for(name, 60, [&] { return side.test(request, &got); })) {
      side.violate(fmt::format("no {} within 60 s", name));
    }
    if (!side.is_first()) check(side, buffer, 0, got, bytes, bytes, bytes, name);
    side.meet();
  }
}

void test_unaligned(Side& side) {
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 4 * kRoom);
  for (uint64_t offset = 0; offset < 18; ++offset) {
    const uint64_t bytes = 1000 + offset * 7;
    buffer.poison();
    if (side.is_first()) {
      fill(buffer.span(17 - offset, bytes), offset);
      side.finish(buffer.send(17 - offset, bytes), "end of an unaligned send");
    } else {
      const std::string name = fmt::format("message at offset {} of a page", offset);
      const uint64_t got = side.finish(buffer.recv(offset, bytes), name);
      check(side, buffer, offset, got, bytes, bytes + 32, offset, name);
      if (const std::string text = buffer.touched(-Buffer::kMargin, static_cast<int64_t>(offset)); !text.empty()) {
        side.violate(fmt::format("{}: {}", name, text));
      }
    }
  }
  side.meet();
}

/// All receives are posted before the first send, and are tested newest first.
void test_outstanding(Side& side) {
  void* const connection = side.link(0);
  constexpr uint64_t kBytes = 512;
  Buffer buffer(side, connection, TUTTI_NET_MIN_REQUESTS * kBytes);
  std::vector<void*> requests;
  if (side.is_first()) side.meet();
  for (uint64_t i = 0; i < TUTTI_NET_MIN_REQUESTS; ++i) {
    if (side.is_first()) fill(buffer.span(i * kBytes, kBytes), i);
    requests.push_back(side.is_first() ? buffer.send(i * kBytes, kBytes) : buffer.recv(i * kBytes, kBytes));
  }
  if (!side.is_first()) side.meet();
  for (uint64_t i = TUTTI_NET_MIN_REQUESTS; i-- > 0;) {
    const std::string name = fmt::format("request {} of {}", i, TUTTI_NET_MIN_REQUESTS);
    const uint64_t got = side.finish(requests[i], name);
    if (!side.is_first()) check(side, buffer, i * kBytes, got, kBytes, kBytes, i, name);
  }
  side.meet();
}

/// A receive is not complete before its message was sent, and a send only when its buffer is free.
void test_complete(Side& side) {
  void* const connection = side.link(0);
  // A send that is complete too early shows only if the plugin still reads the buffer after it was overwritten.
  const uint64_t large = std::min(uint64_t{1} << 21, side.properties().max_message_bytes);
  for (const uint64_t bytes : {uint64_t{256}, large, large, large, large}) {
    Buffer buffer(side, connection, bytes);
    if (side.is_first()) {
      side.meet();
      fill(buffer.span(0, bytes), bytes);
      side.finish(buffer.send(0, bytes), "end of a send");
      buffer.poison();
    } else {
      void* const request = buffer.recv(0, bytes);
      for (int i = 0; i < 200; ++i) {
        if (side.test(request)) side.violate("a receive is complete before its message was sent");
      }
      side.meet();
      const std::string name =
          fmt::format("message of {} bytes, whose sender overwrites the buffer after the send", bytes);
      check(side, buffer, 0, side.finish(request, name), bytes, bytes, bytes, name);
    }
    side.meet();
  }
}

/// A receive that is posted after all messages were taken stays empty.
void test_once(Side& side) {
  run_stream(side, {.count = 60, .bytes = [](uint64_t) { return uint64_t{100}; }});
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 128);
  void* request = nullptr;
  if (side.is_first()) {
    for (uint64_t i = 0; i < 50; ++i) {
      fill(buffer.span(0, 64), i);
      side.finish(buffer.send(0, 64), "end of a send");
    }
    side.meet();
  } else {
    for (uint64_t i = 0; i < 50; ++i) {
      const std::string name = fmt::format("message {} of 50", i);
      check(side, buffer, 0, side.finish(buffer.recv(0, 64), name), 64, 64, i, name);
    }
    side.meet();
    request = buffer.recv(64, 64);
    if (side.wait_for("message that was not sent", 0.05, [&] { return side.test(request); })) {
      side.violate("50 messages were sent, and a message 51 arrives");
    }
  }
  side.meet();
  side.finish(side.is_first() ? buffer.send(0, 64) : request, "last message");
  side.meet();
}

constexpr std::array kRules = {
    rule(13, test_order),     rule(14, test_lengths),     rule(15, test_small),    rule(16, test_large, 130),
    rule(17, test_unaligned), rule(18, test_outstanding), rule(19, test_complete), rule(20, test_once),
};

}  // namespace

std::span<const Rule> message_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
