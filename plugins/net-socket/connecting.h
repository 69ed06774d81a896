// SPDX-License-Identifier: Apache-2.0
// The connecting side, while it lasts. Nothing blocks.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "connection.h"
#include "shared.h"
#include "system.h"
#include "wire.h"

namespace tutti::net_socket {

/// Connects all streams and proves on each that this side knows the secret. The connection stands when the listener has
/// proved the same on all of them. If a stream breaks before this, because the link is down or because strangers crowd
/// it out, all streams are connected again, until Shared::limit() has passed without an answer.
class Connecting : public sdk::Connecting {
 public:
  static Result<std::unique_ptr<Connecting>> start(const Address& address, const Shared& shared);
  /// Null: not yet. kMismatch if one side wants TLS and the other one does not. kRemote if the listener is closed, has
  /// another secret or does not answer in time.
  Result<std::unique_ptr<sdk::Connection>> advance() override;

 private:
  enum class Step { kConnect, kChallenge, kHello, kProof, kDone };
  struct Stream {
    Fd socket;
    Step step = Step::kConnect;
    Challenge challenge;
    Hello hello;
    sdk::Proof proof{};
    size_t moved = 0;  ///< bytes of the step's message
  };

  Connecting(const Address& address, const Shared& shared) : shared_(shared), address_(address) {}
  Status begin();
  Status advance_streams();
  Status advance_stream(size_t index);
  Status try_again(const Status& why);
  Result<Fd> open_stream();
  Result<bool> connected(const Stream& stream);
  Status answer(Stream& stream, size_t index);
  Status check(const Stream& stream) const;
  Result<DataSocket> finish(Stream& stream) const;
  Result<bool> read(Stream& stream, void* to, size_t bytes);
  Result<bool> write(Stream& stream, const void* from, size_t bytes);
  Status lost(int error);

  const Shared& shared_;
  Address address_;
  SocketAddress to_;
  uint32_t number_ = 0;  // of this connection among those to the same address
  Id connection_{};      // random; the same on all streams
  std::vector<Stream> streams_;
  std::optional<Time> silent_since_;  // the listener has not answered since then
  Time pause_until_{};
  bool refused_ = false;  // by the host: nobody listens there
};

}  // namespace tutti::net_socket
