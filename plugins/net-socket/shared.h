// SPDX-License-Identifier: Apache-2.0
// The common objects of a context's listeners and connections: settings, options of sockets, the event descriptor.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "data_socket.h"
#include "interface.h"
#include "pairs.h"
#include "system.h"
#include "tls.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"

namespace tutti::net_socket {

inline constexpr uint32_t kMaxStreams = 16;

/// The first failure of a connection whose bytes were changed on their way. It ends the context. Any thread.
class Alarm {
 public:
  void raise(const Status& why) {
    const std::lock_guard lock(mutex_);
    if (why_.ok()) why_ = why;
  }
  /// Ok: there is none.
  Status status() const {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  mutable std::mutex mutex_;
  Status why_;
};

/// The faults that were reported. Any thread.
class Reported {
 public:
  /// Whether no report has named the fault before. `fault`: of a lost rail, the addresses of both ends; else a text.
  bool is_first(const std::string& fault) {
    const std::lock_guard lock(mutex_);
    return faults_.insert(fault).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> faults_;
};

struct Shared {
  uint32_t rails = 1;  ///< streams of a connection, each over an interface of its own; 1: Connection has no rails
  uint32_t streams = 1;
  uint64_t stripe_bytes = 0;
  bool pairs_up = true;       ///< connections may share sockets (pairs.h)
  int buffer_bytes = 0;       ///< 0: the system's choice
  std::string congestion;     ///< congestion control of TCP; empty: the system's choice
  Milliseconds grace{10000};  ///< a connection survives each silence shorter than this
  sdk::Host host{};
  std::vector<Interface> interfaces;  ///< the devices of the plugin
  std::unique_ptr<Reported> reported = std::make_unique<Reported>();
  /// Counts how often `events` had an event; idle connections then look. Relaxed: a late look does no harm.
  std::unique_ptr<std::atomic<uint64_t>> arousals = std::make_unique<std::atomic<uint64_t>>(0);
  Fd events;                       ///< epoll, edge-triggered, of every socket with data, and of listeners
  std::shared_ptr<const Tls> tls;  ///< null: data go in clear
  std::unique_ptr<Alarm> alarm = std::make_unique<Alarm>();
  Id id{};                                                   ///< names the context
  std::unique_ptr<Pairs> pairs = std::make_unique<Pairs>();  ///< not used with TLS

  /// A stream of a connection, after the proofs. `key` is used with TLS only.
  Result<DataSocket> make_stream(Fd socket, TlsStream::Role role, const StreamKey& key) const;

  /// A connection that has been silent for this long is lost.
  Milliseconds limit() const { return silence_limit(grace); }

  /// Options of a socket that will send data, or receive data.
  void prepare_sender(const Fd& socket) const;
  void prepare_receiver(const Fd& socket) const;
  /// Reports events of a socket with data.
  Status watch(const Fd& socket) const;

 private:
  int keepalive_idle_s() const;
};

}  // namespace tutti::net_socket
