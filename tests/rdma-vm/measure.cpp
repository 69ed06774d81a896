// SPDX-License-Identifier: Apache-2.0
// Measures net-ib over one cable of the emulated machine, with a thread for each end: bandwidth and one-way latency.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "rdma-vm/ib_network.h"

namespace tutti {
namespace {

using test::Memory;
using test::Pair;
using Clock = std::chrono::steady_clock;
using Buffers = std::vector<std::unique_ptr<Memory>>;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void finish(Pair& net, void* request) {
  const int32_t code = net.finish(request);
  test::require(code == TUTTI_OK, fmt::format("code {}: {}", code, plugin::take_failure_text()));
}

/// Keeps as many requests outstanding as there are buffers.
template <class Post>
void stream(Pair& net, Buffers& buffers, int messages, Post&& post) {
  std::vector<void*> requests(buffers.size());
  for (int i = 0; i < messages; ++i) {
    const auto place = static_cast<size_t>(i) % buffers.size();
    if (requests[place] != nullptr) finish(net, requests[place]);
    requests[place] = post(*buffers[place]);
    test::require(requests[place] != nullptr, "a request was not taken");
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    void*& request = requests[(static_cast<size_t>(messages) + i) % buffers.size()];
    if (request != nullptr) finish(net, request);
  }
}

/// MiB/s, from the first post to the last acknowledgement.
double bandwidth(size_t bytes, int messages) {
  Pair net;
  Buffers out, in;
  for (int i = 0; i < 16; ++i) {
    out.push_back(net.outgoing(std::vector<uint8_t>(bytes)));
    in.push_back(net.incoming(bytes));
  }
  const auto start = Clock::now();
  std::thread receiving([&] { stream(net, in, messages, [&](Memory& to) { return net.recv(to, 0); }); });
  stream(net, out, messages, [&](Memory& from) { return net.send(from, 0); });
  receiving.join();
  return static_cast<double>(bytes) * messages / us_since(start) * 1e6 / (1 << 20);
}

/// Median of half the round trip, in us.
double latency(size_t bytes, int rounds) {
  Pair there, back(test::IbNetwork::Settings{}, "rxe1", "rxe0");
  const auto receives = [&](Pair& net, Buffers& in) {
    for (int i = 0; i < 8; ++i) in.push_back(net.incoming(bytes));
  };
  Buffers in_there, in_back;
  receives(there, in_there);
  receives(back, in_back);
  const auto ping = there.outgoing(std::vector<uint8_t>(bytes)), pong = back.outgoing(std::vector<uint8_t>(bytes));
  std::thread other([&] {
    std::vector<void*> posted;
    for (auto& buffer : in_there) posted.push_back(there.recv(*buffer, 0));
    for (size_t i = 0; i < static_cast<size_t>(rounds); ++i) {
      finish(there, posted[i % 8]);
      void* const answer = back.send(*pong, 0);
      posted[i % 8] = there.recv(*in_there[i % 8], 0);
      finish(back, answer);
    }
  });
  std::vector<void*> posted;
  for (auto& buffer : in_back) posted.push_back(back.recv(*buffer, 0));
  std::vector<double> times;
  for (size_t i = 0; i < static_cast<size_t>(rounds); ++i) {
    const auto start = Clock::now();
    void* const question = there.send(*ping, 0);
    finish(back, posted[i % 8]);
    times.push_back(us_since(start) / 2);
    posted[i % 8] = back.recv(*in_back[i % 8], 0);
    finish(there, question);
  }
  other.join();
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<size_t>(rounds / 2)];
}

}  // namespace
}  // namespace tutti

int main() try {
  fmt::print("net-ib send/recv, 64 KiB: {:.1f} MiB/s\n", tutti::bandwidth(65536, 1000));
  fmt::print("net-ib send/recv, 1 MiB: {:.1f} MiB/s\n", tutti::bandwidth(1 << 20, 100));
  fmt::print("net-ib send/recv, 8 B: {:.2f} us\n", tutti::latency(8, 2000));
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
