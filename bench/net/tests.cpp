// SPDX-License-Identifier: Apache-2.0
#include "net/tests.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "net/round_trips.h"

namespace tutti::net_bench {
namespace {

using Clock = std::chrono::steady_clock;

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// Memory of one connection, registered. All messages of a connection use the same memory, as the raw peers do.
class Buffer {
 public:
  Buffer(Network& network, void* connection, uint64_t bytes)
      : network_(network),
        connection_(connection),
        memory_(std::max<uint64_t>(bytes, 1), uint8_t{1}),
        registration_(network.register_memory(connection, memory_)) {}
  ~Buffer() { network_.deregister_memory(connection_, registration_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* send(uint64_t bytes) { return network_.send(connection_, memory_, bytes, registration_); }
  void* recv(uint64_t bytes) { return network_.recv(connection_, memory_, bytes, registration_); }

 private:
  Network& network_;
  void* connection_;
  std::vector<uint8_t> memory_;
  void* registration_;
};

/// One direction of one connection: `left` messages to post, with at most `window` outstanding.
class Stream {
 public:
  Stream(Network& network, void* connection, bool sends, const Order& order)
      : network_(network),
        buffer_(network, connection, order.bytes),
        sends_(sends),
        bytes_(order.bytes),
        window_(order.window),
        left_(order.count) {}

  /// Posts and completes requests as far as possible; true once all are complete.
  bool advance(uint64_t& moved) {
    while (left_ > 0 && posted_.size() < window_) {
      void* request = sends_ ? buffer_.send(bytes_) : buffer_.recv(bytes_);
      if (request == nullptr) break;
      posted_.push_back(request);
      --left_;
    }
    while (!posted_.empty() && network_.test(posted_.front(), bytes_)) {
      posted_.pop_front();
      ++moved;
    }
    return left_ == 0 && posted_.empty();
  }

 private:
  Network& network_;
  Buffer buffer_;
  bool sends_;
  uint64_t bytes_;
  uint32_t window_;
  uint64_t left_;
  std::deque<void*> posted_;
};

/// A message each way over the first connections: both sides have come here.
void meet(Network& network, const NetComms& comms) {
  const Order one{.bytes = 8, .count = 1};
  Stream out(network, comms.out[0], true, one);
  Stream in(network, comms.in[0], false, one);
  network.wait("the peer", [&](uint64_t& moved) {
    const bool sent = out.advance(moved);
    return in.advance(moved) && sent;
  });
}

void stream(Network& network, const NetComms& comms, const Order& order, bool leads) {
  std::deque<Stream> streams;
  const bool both = order.test == Test::kBothWays;
  for (uint32_t i = 0; i < order.connections; ++i) {
    if (both || !leads) streams.emplace_back(network, comms.in[i], false, order);
    if (both || leads) streams.emplace_back(network, comms.out[i], true, order);
  }
  network.wait("messages", [&](uint64_t& moved) {
    bool done = true;
    for (Stream& one : streams) done = one.advance(moved) && done;
    return done;
  });
}

/// The request, once the network takes it.
template <class Post>
void* post(Network& network, Post&& try_it) {
  void* request = nullptr;
  network.wait("room for a request", [&](uint64_t&) { return (request = try_it()) != nullptr; });
  return request;
}

/// Receives are posted ahead of the messages, as Tutti's connections and ib_send_lat do.
void ping_pong(Network& network, const NetComms& comms, const Order& order, bool leads, std::vector<double>& samples) {
  Buffer out(network, comms.out[0], order.bytes), in(network, comms.in[0], order.bytes);
  const auto finish = [&](void* request) {
    network.wait("a message", [&](uint64_t&) { return network.test(request, order.bytes); });
  };
  // A message larger than the network's buffers moves only while its own request is tested.
  const auto finish_both = [&](void* first, void* second) {
    bool first_done = false, second_done = false;
    network.wait("a message each way", [&](uint64_t&) {
      first_done = first_done || network.test(first, order.bytes);
      second_done = second_done || network.test(second, order.bytes);
      return first_done && second_done;
    });
  };
  std::deque<void*> receives;
  RoundTrips times(leads ? order.count : 0);
  for (uint64_t i = 0, posted = 0; i < order.count; ++i) {
    for (; posted < order.count && receives.size() < order.window; ++posted)
      receives.push_back(post(network, [&] { return in.recv(order.bytes); }));
    if (!leads) finish(receives.front());
    void* const send = post(network, [&] { return out.send(order.bytes); });
    if (leads) {
      finish_both(receives.front(), send);
    } else {
      finish(send);
    }
    receives.pop_front();
    if (leads) times.end();
  }
  samples = times.take();
}

}  // namespace

Outcome carry_out(Network& network, const NetComms& comms, const Order& order, bool leads) {
  Outcome outcome;
  meet(network, comms);
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  if (order.test == Test::kLatency) {
    ping_pong(network, comms, order, leads, outcome.samples);
  } else {
    stream(network, comms, order, leads);
  }
  meet(network, comms);
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  outcome.cpu_seconds = cpu_seconds() - cpu;
  return outcome;
}

}  // namespace tutti::net_bench
