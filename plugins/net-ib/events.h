// SPDX-License-Identifier: Apache-2.0
// The event descriptor of a context: completions, events of devices, and sockets of the exchange.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "device.h"
#include "owners.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"

namespace tutti::net_ib {

/// Something that descriptors report events to.
struct Stir {
  /// Whether an event has come since the last call. Partner: Events::arm.
  bool take() { return stirred.load(std::memory_order_relaxed) && stirred.exchange(false, std::memory_order_acquire); }
  std::atomic<bool> stirred{true};
};

/// A completion queue that wakes the thread which sleeps on the event descriptor.
class Queue {
 public:
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ibv_cq* get() const { return queue_.get(); }

 private:
  friend class Events;
  explicit Queue(class Events& events) : events_(events) {}
  class Events& events_;
  CompletionQueue queue_;
};

/// Threads: any.
class Events {
 public:
  static Result<std::unique_ptr<Events>> create(const sdk::Host& host);
  int fd() const { return epoll_.get(); }

  /// Adds a device: its events, and the completions of its queues.
  Status add(const std::shared_ptr<Device>& device);
  Result<std::unique_ptr<Queue>> make_queue(const Device& device, uint32_t entries);
  /// Reports each new event of a descriptor to `stir`, until forget(). `once`: until the next call.
  Status watch(int fd, Stir& stir, bool once = false);
  /// Reports no event of a descriptor after this call. Before each close() of a watched one: if a forked child has a
  /// copy, the descriptor stays in the epoll.
  void forget(const Fd& fd);
  /// Collects pending events. True: there may be work; false: the next event makes the descriptor readable.
  bool arm();

 private:
  friend class Queue;
  struct Source {
    std::shared_ptr<Device> device;
    CompletionChannel channel;
  };
  explicit Events(const sdk::Host& host) : host_(host) {}
  void forget(Queue& queue);
  void drain(const Source& source);

  sdk::Host host_;
  Fd epoll_;
  std::mutex mutex_;           // guards all below
  std::list<Source> sources_;  // one per device
  std::vector<Queue*> quiet_;  // queues that would not report their next completion
};

}  // namespace tutti::net_ib
