// SPDX-License-Identifier: Apache-2.0
// The network of one communicator of NCCL: listeners, and connects under way.
//
// Connects have a context of the network plugin of their own, apart from listeners. Tutti's communicators close all
// connections together, so a network may let connections in opposite directions of one context share a socket. NCCL
// closes connections one by one, and before version 11 all communicators of a process have one context.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "nccl_net/connection.h"
#include "nccl_net/network.h"
#include "tutti/plugin/network.h"
#include "tutti/status.h"

namespace tutti::nccl_net {

/// Any thread.
class Context : public std::enable_shared_from_this<Context> {
 public:
  static Result<std::shared_ptr<Context>> create(Network& network, uint64_t communicator);
  /// Gives up connects that are under way. The children of the context hold it, so they are closed before.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Network& network() const { return network_; }

  /// Starts or goes on with a connect. Null: not yet. NCCL calls again with the same buffer of the handle, which
  /// identifies the connect: the handle has no room for a state. A different handle in that buffer begins a new
  /// connect.
  Result<std::unique_ptr<Connection>> connect(int device, const void* handle);

 private:
  friend class Listener;

  struct Attempt {
    tutti_net_handle handle{};
    const Device* device = nullptr;
    void* state = nullptr;
  };

  explicit Context(Network& network) : network_(network) {}
  Status open(uint64_t communicator, void** context);
  Attempt& attempt_of(const Device& device, const void* handle);

  Network& network_;
  void* connecting_ = nullptr;  // contexts of the network plugin; null: not open
  void* listening_ = nullptr;
  std::map<const void*, Attempt> attempts_;  // by address of the handle; guarded by lock_setup()
};

class Listener {
 public:
  /// Fills the 128 bytes of `handle`.
  static Result<std::unique_ptr<Listener>> open(std::shared_ptr<Context> context, int device, void* handle);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// Null: none yet.
  Result<std::unique_ptr<Connection>> accept();

 private:
  Listener(std::shared_ptr<Context> context, const Device& device) : context_(std::move(context)), device_(device) {}

  const std::shared_ptr<Context> context_;
  const Device& device_;
  void* listener_ = nullptr;
  void* state_ = nullptr;  // of an accept that is under way; guarded by lock_setup()
};

}  // namespace tutti::nccl_net
