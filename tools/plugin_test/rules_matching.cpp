// SPDX-License-Identifier: Apache-2.0
// Rules about tags, groups, and messages and receives that do not come at the same time.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint64_t kBytes = 200;
constexpr uint64_t kRounds = 20;

/// Receives of two tags are posted in turn; the messages come in a different order of tags.
void test_tags(Side& side) {
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 8 * kBytes);
  for (uint64_t round = 0; round < kRounds; ++round) {
    std::array<uint32_t, 8> tags = {0, 1, 0, 1, 2, 2, 7, 1u << 16};
    std::vector<void*> requests;
    if (!side.is_first()) {
      for (uint64_t i = 0; i < tags.size(); ++i) requests.push_back(buffer.recv(i * kBytes, kBytes, tags[i]));
      side.meet();
    } else {
      side.meet();
      // The order within a tag stays.
      std::array<uint64_t, 8> order = {6, 1, 4, 0, 7, 3, 2, 5};
      for (const uint64_t i : order) {
        fill(buffer.span(i * kBytes, kBytes), round * 8 + i);
        requests.push_back(buffer.send(i * kBytes, kBytes, tags[i]));
      }
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const std::string name = fmt::format("message {} with tag {}", i, tags[i]);
      side.finish(requests[i], name);
      if (side.is_first()) continue;
      const std::string text = difference(buffer.span(i * kBytes, kBytes), round * 8 + i);
      if (!text.empty()) side.violate(fmt::format("{}: {}", name, text));
    }
    side.meet();
  }
}

void test_groups(Side& side) {
  if ((side.capabilities() & TUTTI_NET_CAP_GROUPED_RECV) == 0) side.skip("the plugin has no grouped receives");
  const uint32_t parts = std::min(side.properties().max_grouped_recvs, 8u);
  void* const connection = side.link(0);
  Buffer buffer(side, connection, parts * kBytes);
  for (uint64_t round = 0; round < kRounds; ++round) {
    std::vector<void*> addresses, registrations, requests;
    std::vector<uint64_t> room(parts, kBytes), got(parts);
    std::vector<uint32_t> tags;
    for (uint32_t i = 0; i < parts; ++i) {
      addresses.push_back(buffer.at(i * kBytes));
      registrations.push_back(buffer.registration());
      tags.push_back(10 + i);
    }
    const auto bytes_of = [&](uint32_t i) { return kBytes - i - round; };
    if (side.is_first()) {
      side.meet();
      for (uint32_t i = parts; i-- > 0;) {
        fill(buffer.span(i * kBytes, kBytes), round * 8 + i);
        requests.push_back(buffer.send(i * kBytes, bytes_of(i), tags[i]));
      }
      for (void* request : requests) side.finish(request, "end of a send to a grouped receive");
    } else {
      void* request = nullptr;
      side.wait(fmt::format("place for a receive of {} messages", parts), [&] {
        side.call(Entry::kRecv, [&] {
          return side.ops().recv(connection, parts, addresses.data(), room.data(), tags.data(), registrations.data(),
                                 &request);
        });
        return request != nullptr;
      });
      side.meet();
      side.wait(fmt::format("grouped receive of {} messages", parts), [&] { return side.test(request, got.data()); });
      for (uint32_t i = 0; i < parts; ++i) {
        const std::string name = fmt::format("part {} of a grouped receive", i);
        if (got[i] != bytes_of(i)) {
          side.violate(fmt::format("{} is reported to have {} bytes, but has {}", name, got[i], bytes_of(i)));
        }
        const std::string text = difference(buffer.span(i * kBytes, bytes_of(i)), round * 8 + i);
        if (!text.empty()) side.violate(fmt::format("{}: {}", name, text));
      }
    }
    side.meet();
  }
}

void test_too_long(Side& side) {
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 256);
  if (side.is_first()) {
    side.meet();
    fill(buffer.span(0, 256), 1);
    void* const request = buffer.send(0, 256);
    side.wait_for("end of a send that is too long", 1, [&] {
      const Outcome outcome = side.attempt_test(request);
      return outcome.done || (outcome.code != TUTTI_OK && outcome.code != TUTTI_AGAIN);
    });
  } else {
    void* const request = buffer.recv(0, 64);
    side.meet();
    uint64_t bytes = 0;
    side.wait("failure of a receive whose message is too long", [&] {
      const Outcome outcome = side.attempt_test(request, &bytes);
      if (outcome.done && outcome.code == TUTTI_OK) {
        side.violate(fmt::format("a message of 256 bytes completes a receive of 64 bytes, with length {}", bytes));
      }
      if (outcome.code == TUTTI_REMOTE) {
        side.violate("a receive whose message is too long fails with TUTTI_REMOTE, which blames the connection");
      }
      return outcome.code != TUTTI_OK && outcome.code != TUTTI_AGAIN;
    });
    if (const std::string text = buffer.touched(64, 256); !text.empty()) side.violate(text);
  }
  side.meet();
}

/// The messages are on their way before the first receive.
void test_early_message(Side& side) {
  void* const connection = side.link(0);
  Buffer buffer(side, connection, 8 * kBytes);
  std::vector<void*> requests;
  if (side.is_first()) {
    for (uint64_t i = 0; i < 8; ++i) {
      fill(buffer.span(i * kBytes, kBytes), i);
      requests.push_back(buffer.send(i * kBytes, kBytes));
      side.test(requests.back()) ? requests.pop_back() : void();
    }
    side.meet();
  } else {
    side.meet();
    for (uint64_t i = 0; i < 8; ++i) requests.push_back(buffer.recv(i * kBytes, kBytes));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    side.finish(requests[i], fmt::format("message {} that was sent before its receive", i));
    if (side.is_first()) continue;
    if (const std::string text = difference(buffer.span(i * kBytes, kBytes), i); !text.empty()) side.violate(text);
  }
  side.meet();
}

constexpr std::array kRules = {
    rule(21, test_tags),
    rule(22, test_groups),
    rule(23, test_too_long),
    rule(24, test_early_message),
};

}  // namespace

std::span<const Rule> matching_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
