// SPDX-License-Identifier: Apache-2.0
// The connecting side: a line to the listener, proofs of both sides, then an endpoint to the listener's worker.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "connection.h"
#include "shared.h"
#include "tutti/sdk/network.h"
#include "wire.h"

namespace tutti::net_ucx {

/// A line that breaks before the connection stands is made again, until the listener's host has not answered for longer
/// than the limit of silence.
class Connecting : public sdk::Connecting {
 public:
  static Result<std::unique_ptr<sdk::Connecting>> start(const tutti_net_handle& handle, Shared& shared);
  ~Connecting() override;
  Result<std::unique_ptr<sdk::Connection>> advance() override;

 private:
  enum class Step { kConnect, kChallenge, kAddress, kHello, kProof, kTrial, kDone };

  Connecting(const Address& address, Shared& shared)
      : shared_(shared), address_(address), to_(SocketAddress::of(address.family, address.ip, address.port)) {}
  Status open_line();
  Status advance_line();
  Result<bool> take_step();
  Result<bool> connected();
  Status check_challenge();
  Status answer();
  Status check_proof() const;
  Status start_trial();
  Status doubt(const Status& failure);
  Status try_again(const Status& why);
  Status unreachable(const Status& why) const;

  Shared& shared_;
  const Address address_;
  const SocketAddress to_;
  Fd line_;
  Stir stir_;
  Step step_ = Step::kConnect;
  size_t moved_ = 0;  // bytes of the step's message
  Challenge challenge_;
  std::vector<std::byte> worker_;  // address of the listener's worker
  Hello hello_;
  sdk::Proof proof_{};
  uint64_t round_ = 0;
  std::unique_ptr<Connection> connection_;  // from its trial on; then it has the line
  std::optional<Clock::time_point> silent_since_;
  std::optional<Clock::time_point> closed_since_;  // the other side closes the line each time
  Clock::time_point pause_until_{};
  bool refused_ = false;
  bool has_doubted_ = false;
};

}  // namespace tutti::net_ucx
