// SPDX-License-Identifier: Apache-2.0
// The network of one communicator: devices, listeners and connects of an NCCL network plugin.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "connection.h"
#include "library.h"
#include "tutti/sdk/network.h"

namespace tutti::net_nccl {

/// A connect under way. NCCL's plugins keep its state in the handle, which must stay where it is.
struct Attempt {
  alignas(64) std::array<std::byte, kHandleBytes> handle{};
  uint32_t device = 0;
};

class Context : public sdk::NetworkContext {
 public:
  static Result<std::unique_ptr<Context>> create(std::shared_ptr<Library> library, const Sink& sink,
                                                 uint64_t communicator);
  ~Context() override;

  uint32_t device_count() const override { return static_cast<uint32_t>(devices_.size()); }
  Result<tutti_net_properties> properties(uint32_t device) const override;
  Result<std::unique_ptr<sdk::Listener>> listen(uint32_t device, tutti_net_handle& handle) override;
  Result<std::unique_ptr<sdk::Connecting>> connect(uint32_t device, const tutti_net_handle& handle) override;

  const std::vector<Device>& devices() const { return devices_; }
  /// Null: not yet.
  Result<std::unique_ptr<sdk::Connection>> advance(Attempt& attempt);
  Result<std::unique_ptr<sdk::Connection>> accept(void* listener, uint32_t device);
  void close_listener(void* listener);
  /// Takes a connect that the host gives up. NCCL's plugins cannot end a connect, so the connect goes on until it can
  /// be closed.
  void leave_to_end(std::unique_ptr<Attempt> attempt) { left_.push_back(std::move(attempt)); }

 private:
  Context(std::shared_ptr<Library> library, const Sink& sink) : library_(std::move(library)), sink_(sink) {}
  Status check(uint32_t device) const;
  std::string doing(const char* entry, uint32_t device) const;
  void close_left();

  std::shared_ptr<Library> library_;
  const Sink& sink_;
  void* context_ = nullptr;  // the plugin's own
  bool has_begun_ = false;
  std::vector<Device> devices_;
  WaitingRoom room_;
  std::vector<std::unique_ptr<Attempt>> left_;
};

}  // namespace tutti::net_nccl
