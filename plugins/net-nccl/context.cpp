// SPDX-License-Identifier: Apache-2.0
#include "context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace tutti::net_nccl {
namespace {

class Listener : public sdk::Listener {
 public:
  Listener(Context& context, void* listener, uint32_t device)
      : context_(context), listener_(listener), device_(device) {}
  ~Listener() override { context_.close_listener(listener_); }
  Result<std::unique_ptr<sdk::Connection>> accept() override { return context_.accept(listener_, device_); }

 private:
  Context& context_;
  void* const listener_;
  const uint32_t device_;
};

class Connecting : public sdk::Connecting {
 public:
  Connecting(Context& context, std::unique_ptr<Attempt> attempt) : context_(context), attempt_(std::move(attempt)) {}
  ~Connecting() override {
    if (attempt_ != nullptr) context_.leave_to_end(std::move(attempt_));
  }
  Result<std::unique_ptr<sdk::Connection>> advance() override {
    auto connection = context_.advance(*attempt_);
    if (!connection.ok() || *connection != nullptr) attempt_.reset();
    return connection;
  }

 private:
  Context& context_;
  std::unique_ptr<Attempt> attempt_;
};

uint32_t memory_of(const Device& device, bool has_dmabuf) {
  uint32_t memory = 0;
  if ((device.memory & kNcclHost) != 0) memory |= TUTTI_MEMORY_HOST;
  if ((device.memory & kNcclCuda) != 0) memory |= TUTTI_MEMORY_CUDA;
  if ((device.memory & kNcclDmabuf) != 0 && has_dmabuf) memory |= TUTTI_MEMORY_DMABUF;
  return memory;
}

}  // namespace

Result<std::unique_ptr<Context>> Context::create(std::shared_ptr<Library> library, const Sink& sink,
                                                 uint64_t communicator) {
  std::unique_ptr<Context> context(new Context(std::move(library), sink));
  TUTTI_TRY(context->library_->begin(sink, communicator, &context->context_, context->devices_));
  context->has_begun_ = true;
  return context;
}

Context::~Context() {
  close_left();
  if (has_begun_) library_->end(sink_, context_);
}

Status Context::check(uint32_t device) const {
  if (device < devices_.size()) return {};
  return {Code::kInvalidArgument, fmt::format("there is no device {}; NCCL network plugin {} has {}", device,
                                              library_->place(), devices_.size())};
}

std::string Context::doing(const char* entry, uint32_t device) const {
  return fmt::format("{} of device '{}'", entry, devices_[device].name);
}

/// NCCL does not hold plugins to their number of connections, so it is not passed on.
Result<tutti_net_properties> Context::properties(uint32_t device) const {
  TUTTI_TRY(check(device));
  const Device& from = devices_[device];
  tutti_net_properties out{};
  out.struct_size = sizeof out;
  out.port = static_cast<uint32_t>(std::max(from.port, 0));
  out.name = sdk::borrow(from.name);
  out.pci_path = sdk::borrow(from.pci_path);
  out.guid = from.guid;
  out.memory = memory_of(from, library_->adapter().has_dmabuf());
  out.max_grouped_recvs = kMostBuffers;
  out.speed_gbs = std::max(from.speed_mbit, 0) / 8000.0;
  out.latency_us = std::max(from.latency_us, 0.0f);
  out.max_message_bytes = from.max_message_bytes;
  out.rail = from.rail;
  return out;
}

Result<std::unique_ptr<sdk::Listener>> Context::listen(uint32_t device, tutti_net_handle& handle) {
  TUTTI_TRY(check(device));
  const LogScope log(sink_);
  Attempt filled;  // for its alignment
  void* listener = nullptr;
  const int code = library_->adapter().listen(context_, static_cast<int>(device), filled.handle.data(), &listener);
  if (code != kNcclSuccess) return library_->failure(doing("listen", device), code);
  if (listener == nullptr) return library_->failure(doing("listen (no listener)", device), kNcclInternalError);
  std::memcpy(handle.bytes, filled.handle.data(), sizeof handle.bytes);
  return std::unique_ptr<sdk::Listener>(std::make_unique<Listener>(*this, listener, device));
}

Result<std::unique_ptr<sdk::Connecting>> Context::connect(uint32_t device, const tutti_net_handle& handle) {
  TUTTI_TRY(check(device));
  auto attempt = std::make_unique<Attempt>();
  std::memcpy(attempt->handle.data(), handle.bytes, sizeof handle.bytes);
  attempt->device = device;
  return std::unique_ptr<sdk::Connecting>(std::make_unique<Connecting>(*this, std::move(attempt)));
}

Result<std::unique_ptr<sdk::Connection>> Context::advance(Attempt& attempt) {
  const LogScope log(sink_);
  close_left();
  void* comm = nullptr;
  const int code =
      library_->adapter().connect(context_, static_cast<int>(attempt.device), attempt.handle.data(), &comm);
  if (code == kNcclInProgress) return std::unique_ptr<sdk::Connection>();
  if (code != kNcclSuccess) return library_->lost(doing("connect", attempt.device), code);
  if (comm == nullptr) return std::unique_ptr<sdk::Connection>();
  return std::unique_ptr<sdk::Connection>(
      std::make_unique<Connection>(*library_, sink_, room_, devices_[attempt.device], comm, Connection::Role::kSender));
}

Result<std::unique_ptr<sdk::Connection>> Context::accept(void* listener, uint32_t device) {
  const LogScope log(sink_);
  close_left();
  void* comm = nullptr;
  const int code = library_->adapter().accept(listener, &comm);
  if (code == kNcclInProgress) return std::unique_ptr<sdk::Connection>();
  if (code != kNcclSuccess) return library_->failure(doing("accept", device), code);
  if (comm == nullptr) return std::unique_ptr<sdk::Connection>();
  return std::unique_ptr<sdk::Connection>(
      std::make_unique<Connection>(*library_, sink_, room_, devices_[device], comm, Connection::Role::kReceiver));
}

void Context::close_listener(void* listener) {
  const LogScope log(sink_);
  const int code = library_->adapter().close_listener(listener);
  if (code != kNcclSuccess) sink_.write(kNcclWarn, std::string(library_->failure("closeListen", code).text()).c_str());
}

void Context::close_left() {
  if (left_.empty()) return;
  const LogScope log(sink_);
  Adapter& adapter = library_->adapter();
  std::erase_if(left_, [&](const std::unique_ptr<Attempt>& attempt) {
    void* comm = nullptr;
    const int code = adapter.connect(context_, static_cast<int>(attempt->device), attempt->handle.data(), &comm);
    if (comm != nullptr) adapter.close_sender(comm);
    return comm != nullptr || (code != kNcclSuccess && code != kNcclInProgress);
  });
}

}  // namespace tutti::net_nccl
