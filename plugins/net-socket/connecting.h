// SPDX-License-Identifier: Apache-2.0
// The connecting side, while it lasts. Nothing blocks.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "connection.h"
#include "interface.h"
#include "rails.h"
#include "shared.h"
#include "system.h"
#include "wire.h"

namespace tutti::net_socket {

/// Connects all streams and proves on each that this side knows the secret. The connection stands when the listener has
/// proved the same on all of them. If a stream breaks before this, because the link is down or because strangers crowd
/// it out, all streams are connected again, until Shared::limit() has passed without an answer.
///
/// With rails, each stream leads to an address of its own. A rail on which no challenge comes is left out, if there is
/// another one: the hellos, which name the rails of the connection, wait for that.
class Connecting : public sdk::Connecting {
 public:
  /// `own`: with rails, the interfaces of this end, in the order of the rails; they start again after the last one.
  static Result<std::unique_ptr<Connecting>> start(const Address& address, const Shared& shared,
                                                   std::vector<Interface> own = {});
  /// Null: not yet. kMismatch if the settings `tls` or `rails` of both sides differ. kRemote if the listener is closed,
  /// has another secret or does not answer in time.
  Result<std::unique_ptr<sdk::Connection>> advance() override;

 private:
  enum class Step { kConnect, kChallenge, kHello, kProof, kDone, kLeftOut };
  struct Stream {
    Fd socket;
    Step step = Step::kConnect;
    Challenge challenge;
    Hello hello;
    sdk::Proof proof{};
    size_t moved = 0;  ///< bytes of the step's message
    bool is(Step other) const { return step == other; }
  };

  Connecting(const Address& address, const Shared& shared) : shared_(shared), address_(address) {}
  Status begin();
  Status advance_streams();
  Status advance_stream(size_t index);
  Status try_again(const Status& why);
  bool has_rails() const { return address_.rails > 1; }
  Status set_rails(std::vector<Interface> own);
  const SocketAddress& to(size_t index) const { return to_[has_rails() ? index : 0]; }
  Status leave_out(size_t index, const Status& why);
  Status choose_rails();
  std::unique_ptr<sdk::Connection> make_rails();
  Result<Fd> open_stream(size_t index);
  Result<bool> connected(size_t index);
  Status check_version(size_t index) const;
  Status answer(Stream& stream, size_t index);
  Status check(size_t index) const;
  Result<DataSocket> finish(Stream& stream) const;
  Result<bool> read(size_t index, void* to, size_t bytes);
  Result<bool> write(size_t index, const void* from, size_t bytes);
  Status lost(size_t index, int error);

  const Shared& shared_;
  Address address_;
  std::vector<SocketAddress> to_;     // of each rail; without rails, one
  std::vector<Interface> own_;        // with rails
  uint32_t used_ = 0;                 // with rails: a bit for each that the connection has, when they are chosen
  std::optional<Time> patience_end_;  // for rails without a challenge
  uint32_t number_ = 0;               // of this connection among those to the same address
  Id connection_{};                   // random; the same on all streams
  std::vector<Stream> streams_;
  std::optional<Time> silent_since_;  // the listener has not answered since then
  Time pause_until_{};
  bool refused_ = false;  // by the host: nobody listens there
};

}  // namespace tutti::net_socket
