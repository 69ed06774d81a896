// SPDX-License-Identifier: Apache-2.0
// What both ends of a connection have: queue pairs, their completion queue, the board, and the TCP connection.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "events.h"
#include "owners.h"
#include "queue_pair.h"
#include "settings.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"
#include "wire.h"

namespace tutti::net_ib {

/// The common objects of a context's listeners and connections.
struct Shared {
  sdk::Host host;
  Settings settings;
  std::unique_ptr<Events> events;
};

/// Thread-compatible.
class Link {
 public:
  static constexpr uint32_t kSends = 80;                ///< requests of one queue pair: 64, and some to spare
  static constexpr uint32_t kReceives = kRecords + 32;  ///< likewise, so that receives are posted in batches

  /// Makes `queue_pairs` queue pairs.
  static Result<std::unique_ptr<Link>> create(const Shared& shared, const Port& port, uint32_t queue_pairs);
  /// The queue pairs go first, so that the device touches no memory afterwards.
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Connects the queue pairs to those of the peer; the smaller count of both sides is used.
  Status connect(const Endpoint& peer, bool sends);
  /// Takes the TCP connection of the exchange.
  void keep(Fd exchange);

  const Shared& shared() const { return shared_; }
  const Port& port() const { return port_; }
  const Endpoint& endpoint() const { return own_; }
  const Endpoint& peer() const { return peer_; }
  Board& board() { return *board_; }
  uint32_t board_key() const { return board_registration_->region->lkey; }
  std::vector<QueuePair>& queue_pairs() { return pairs_; }
  ibv_cq* queue() const { return queue_->get(); }

  /// Hands every completion to `take`, which returns Status, until there is none left or the link breaks. Completions
  /// with an error break the link.
  template <class Take>
  void poll(Take&& take);
  /// Reposts a receive that a completion used up.
  Status replenish(uint32_t number);
  /// Why the link is broken; ok: it is not.
  const Status& failure() const { return failure_; }
  void fail(const Status& why);
  /// "the connection from 10.0.0.1 (mlx5_0) to 10.0.0.2 (mlx5_1)".
  const std::string& ends() const { return ends_; }

 private:
  Link(const Shared& shared, Port port) : shared_(shared), port_(std::move(port)) {}
  Status make_board();
  Status make_pairs(uint32_t count);
  void fail(const ibv_wc& completion);
  /// Whether the TCP connection has ended, or the device has failed. Seldom a system call.
  Status check_peer();

  const Shared& shared_;
  Port port_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Board> board_;
  Registration* board_registration_ = nullptr;
  std::vector<QueuePair> pairs_;
  std::vector<uint32_t> used_receives_;  // by queue pair, to be posted again
  Endpoint own_;
  Endpoint peer_;
  Fd exchange_;
  Stir stir_;
  uint32_t empty_polls_ = 0;
  std::string ends_;
  Status failure_;
};

template <class Take>
void Link::poll(Take&& take) {
  constexpr int kAtOnce = 16;
  Status end;
  while (failure_.ok()) {
    std::array<ibv_wc, kAtOnce> completions;
    const int count = ibv_poll_cq(queue(), kAtOnce, completions.data());
    if (count < 0) return fail(Status(Code::kDevice, "cannot read a completion queue; see the kernel log"));
    for (int i = 0; i < count && failure_.ok(); ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      if (completion.status != IBV_WC_SUCCESS) {
        fail(completion);
      } else if (const Status taken = take(completion); !taken.ok()) {
        fail(taken);
      }
    }
    if (count > 0) empty_polls_ = 0;
    if (count == kAtOnce) continue;
    if (!end.ok()) return fail(end);
    // What arrived before the end of the peer still counts: its completions are there by now, and are read first.
    end = check_peer();
    if (end.ok()) return;
  }
}

}  // namespace tutti::net_ib
