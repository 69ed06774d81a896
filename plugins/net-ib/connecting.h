// SPDX-License-Identifier: Apache-2.0
// The connecting side of the exchange, while it lasts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "link.h"
#include "tutti/sdk/network.h"
#include "wire.h"

namespace tutti::net_ib {

/// If the TCP connection breaks before both sides are ready, because the link is down or because strangers crowd it
/// out, the exchange begins again, until the listener has not answered for `timeouts.peer_loss`.
class Connecting : public sdk::Connecting {
 public:
  /// kInvalidArgument for a handle that is none of this plugin.
  static Result<std::unique_ptr<Connecting>> start(const Shared& shared, std::vector<Port> ports,
                                                   const tutti_net_handle& handle);
  ~Connecting() override { shared_.events->forget(socket_); }
  Result<std::unique_ptr<sdk::Connection>> advance() override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Step { kConnect, kChallenge, kWelcome, kDone };

  Connecting(const Shared& shared, std::vector<Port> ports, const Handle& handle)
      : shared_(shared), ports_(std::move(ports)), handle_(handle) {}
  Status begin();
  Status advance_steps();
  Status try_again(const Status& why);
  Result<bool> read(void* to, size_t bytes);
  Status write(const void* from, size_t bytes);
  Status say_hello();
  std::string there() const;

  const Shared& shared_;
  const Interface& exchange() const { return ports_.front().exchange; }
  const std::vector<Port> ports_;
  const Handle handle_;
  std::unique_ptr<Link> link_;
  Fd socket_;
  Stir stir_;
  Step step_ = Step::kConnect;
  Challenge challenge_;
  Hello hello_;
  Welcome welcome_;
  size_t read_ = 0;
  bool refused_ = false;  // there is no listener
  Clock::time_point silent_since_ = Clock::now();
  Clock::time_point pause_until_{};
};

}  // namespace tutti::net_ib
