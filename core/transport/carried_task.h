// SPDX-License-Identifier: Apache-2.0
// A relay over slots (slot_carrier.h) and the tasks of its two connections, moved by one thread: none has to wake
// another one.
#pragma once

#include <memory>
#include <utility>

#include "transport/net.h"
#include "transport/net_tasks.h"

namespace tutti::transport {

/// Threads: as Task demands.
class CarriedTask : public progress::Task {
 public:
  CarriedTask(Net::Pair connections, std::unique_ptr<progress::Task> relay)
      : connections_(std::move(connections)), relay_(std::move(relay)) {}

  Result<bool> progress() override {
    TUTTI_ASSIGN(const bool received, connections_.receiver->progress());
    TUTTI_ASSIGN(const bool carried, relay_->progress());
    TUTTI_ASSIGN(const bool sent, connections_.sender->progress());
    return received || carried || sent;
  }
  bool idle() const override { return relay_->idle() && connections_.sender->idle() && connections_.receiver->idle(); }
  Result<bool> settle() override {
    TUTTI_ASSIGN(const bool received, connections_.receiver->settle());
    TUTTI_ASSIGN(const bool sent, connections_.sender->settle());
    return received || sent;
  }
  bool polls() const override { return true; }

 private:
  const Net::Pair connections_;
  const std::unique_ptr<progress::Task> relay_;  // uses the connections
};

}  // namespace tutti::transport
