// SPDX-License-Identifier: Apache-2.0
#include "nccl_net/context.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "nccl_plugins/network_tables.h"

namespace tutti::nccl_net {

static_assert(sizeof(tutti_net_handle) <= nccl_plugins::kHandleBytes);

Result<std::shared_ptr<Context>> Context::create(Network& network, uint64_t communicator) {
  std::shared_ptr<Context> context(new Context(network));
  TUTTI_TRY(context->open(communicator, &context->connecting_));
  TUTTI_TRY(context->open(communicator, &context->listening_));
  return context;
}

Status Context::open(uint64_t communicator, void** context) {
  const auto lock = network_.lock_setup();
  const int32_t code = network_.ops().create(network_.self(), communicator, context);
  return code == TUTTI_OK ? Status() : network_.failure("cannot open a context", code);
}

Context::~Context() {
  const auto lock = network_.lock_setup();
  for (auto& [address, attempt] : attempts_) {
    if (attempt.state != nullptr) network_.ops().cancel(attempt.state);
  }
  for (void* const context : {connecting_, listening_}) {
    if (context != nullptr) network_.ops().destroy(context);
  }
}

/// With lock_setup() held.
Context::Attempt& Context::attempt_of(const Device& device, const void* handle) {
  Attempt& attempt = attempts_[handle];
  const bool is_same =
      attempt.device == &device && std::memcmp(attempt.handle.bytes, handle, sizeof attempt.handle.bytes) == 0;
  if (is_same) return attempt;
  if (attempt.state != nullptr) network_.ops().cancel(std::exchange(attempt.state, nullptr));
  std::memcpy(attempt.handle.bytes, handle, sizeof attempt.handle.bytes);
  attempt.device = &device;
  return attempt;
}

Result<std::unique_ptr<Connection>> Context::connect(int device, const void* handle) {
  TUTTI_ASSIGN(const Device* const from, network_.device(device));
  void* connection = nullptr;
  {
    const auto lock = network_.lock_setup();
    Attempt& attempt = attempt_of(*from, handle);
    const int32_t code = network_.ops().connect(connecting_, from->index, &attempt.handle, &attempt.state, &connection);
    if (code == TUTTI_AGAIN) return std::unique_ptr<Connection>();
    attempts_.erase(handle);
    if (code != TUTTI_OK) return network_.failure(fmt::format("cannot connect from '{}'", from->name), code);
  }
  return std::make_unique<Connection>(shared_from_this(), *from, connection, Connection::Role::kSender);
}

Result<std::unique_ptr<Listener>> Listener::open(std::shared_ptr<Context> context, int device, void* handle) {
  Network& network = context->network();
  TUTTI_ASSIGN(const Device* const on, network.device(device));
  tutti_net_handle filled{};
  std::unique_ptr<Listener> listener(new Listener(std::move(context), *on));
  const auto lock = network.lock_setup();
  const int32_t code = network.ops().listen(listener->context_->listening_, on->index, &filled, &listener->listener_);
  if (code != TUTTI_OK) return network.failure(fmt::format("cannot listen on '{}'", on->name), code);
  std::memcpy(handle, filled.bytes, sizeof filled.bytes);
  return listener;
}

Listener::~Listener() {
  if (listener_ == nullptr) return;
  Network& network = context_->network();
  const auto lock = network.lock_setup();
  if (state_ != nullptr) network.ops().cancel(state_);
  network.ops().close_listener(listener_);
}

Result<std::unique_ptr<Connection>> Listener::accept() {
  Network& network = context_->network();
  void* connection = nullptr;
  {
    const auto lock = network.lock_setup();
    const int32_t code = network.ops().accept(listener_, &state_, &connection);
    if (code == TUTTI_AGAIN) return std::unique_ptr<Connection>();
    state_ = nullptr;
    if (code != TUTTI_OK) return network.failure(fmt::format("cannot accept on '{}'", device_.name), code);
  }
  return std::make_unique<Connection>(context_, device_, connection, Connection::Role::kReceiver);
}

}  // namespace tutti::nccl_net
