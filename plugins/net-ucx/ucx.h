// SPDX-License-Identifier: Apache-2.0
// UCP behind owners: a context, and the worker that moves data.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "library.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"

namespace tutti::net_ucx {

/// The settings of UCX, from the configuration and the host.
struct UcxSettings {
  std::vector<std::string> transports;  ///< of UCX_TLS; empty: left to UCX
  std::vector<std::string> devices;     ///< of UCX_NET_DEVICES; empty: left to UCX
  std::chrono::milliseconds grace{10000};
};

/// The host that logs UCX's lines of one thread, and UCX's latest error there.
struct ThreadLog {
  const sdk::Host* host;
  std::array<char, 512> error;
};
ThreadLog& thread_log();

/// Passes the lines that UCX logs in this thread to the host, as long as it lives. Nested objects are allowed.
class LogOfUcx {
 public:
  explicit LogOfUcx(const sdk::Host& host) : here_(thread_log()), before_(std::exchange(here_.host, &host)) {
    if (before_ == nullptr) here_.error[0] = '\0';
  }
  ~LogOfUcx() { here_.host = before_; }
  LogOfUcx(const LogOfUcx&) = delete;
  LogOfUcx& operator=(const LogOfUcx&) = delete;
  /// Once per process, after load_ucx() and before the first object.
  static void install();
  /// UCX's latest error in this thread since the outermost object began; empty if there was none.
  static std::string last_error() { return thread_log().error.data(); }

 private:
  ThreadLog& here_;  // found once: thread-local memory of a plugin costs a call
  const sdk::Host* before_;
};

/// The version of the UCX library: major << 16 | minor.
uint32_t ucx_version();

/// "Connection reset by remote peer", with UCX's last error of this thread if there was one.
std::string reason_of(ucs_status_t status);

/// The transports and devices of an endpoint's lanes: "tcp/eth0, tcp/eth1". Empty if UCX does not tell.
std::string ways_of(ucp_ep_h endpoint);

/// A UCP context with one worker for sends and receives. One thread at a time.
class Ucx {
 public:
  /// kConfig if the settings leave no transport, kSystem if UCX fails.
  static Result<std::unique_ptr<Ucx>> create(const UcxSettings& settings);
  ~Ucx();
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;

  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }
  std::span<const std::byte> address() const { return address_; }

  /// Advances all connections, once per round of the callers: a caller passes the number that it got last time (0 at
  /// first), and finds the round done if another caller advanced meanwhile.
  void progress(uint64_t& round) {
    if (round == rounds_) progress();
    round = rounds_;
  }
  /// Advances all connections now.
  void progress();
  /// Prepares the descriptor of the worker for sleeping. False: there is work now.
  Result<bool> arm();
  /// Readable if the worker has events, once armed. kSystem if UCX does not tell it.
  Result<int> descriptor() const;
  /// Waits until the worker has no operation, also none of closed endpoints, and no data to let out. False: the
  /// deadline passed first.
  bool drain(std::chrono::steady_clock::time_point deadline);
  /// Leaves the worker alone for ever: only progress lets UCX touch a buffer. UCX can neither end a receive that is
  /// under way, nor a worker that has one, so its memory is lost.
  void abandon();
  bool abandoned() const { return abandoned_; }

 private:
  Ucx() = default;
  Status start(ucp_config_t* config);
  Status open(ucp_config_t* config);
  Status make_worker();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::vector<std::byte> address_;
  bool abandoned_ = false;
  uint64_t rounds_ = 1;
};

}  // namespace tutti::net_ucx
