// SPDX-License-Identifier: Apache-2.0
#include "nccl_net/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "nccl_net/context.h"
#include "nccl_net/journal.h"
#include "nccl_plugins/network_tables.h"

namespace tutti::nccl_net {
namespace {

void* registration_of(const void* region) {
  return region == nullptr ? nullptr : static_cast<const Region*>(region)->registration;
}

}  // namespace

void Buffers::add(void* address, uint64_t size, uint32_t tag, void* region) {
  addresses.at(count) = address;
  bytes.at(count) = size;
  tags.at(count) = tag;
  registrations.at(count) = registration_of(region);
  ++count;
}

Connection::Connection(std::shared_ptr<Context> context, const Device& device, void* connection, Role role)
    : context_(std::move(context)),
      network_(context_->network()),
      device_(device),
      connection_(connection),
      role_(role) {}

Connection::~Connection() {
  const auto lock = network_.lock_setup();
  const std::lock_guard last_call(mutex_);
  network_.ops().close_connection(connection_);
}

int Connection::fail(std::string_view doing, int32_t code) {
  const std::string_view way = role_ == Role::kSender ? "from" : "to";
  const Status status = network_.failure(fmt::format("{} on a connection {} '{}'", doing, way, device_.name), code);
  if (!std::exchange(has_failed_, true)) warn(std::string(status.text()));
  return result_of(status.code());
}

int Connection::refuse(std::string_view why) {
  warn(fmt::format("network '{}', device '{}': {}", network_.name(), device_.name, why));
  return nccl_plugins::kNcclInvalidArgument;
}

int Connection::add_region(void* data, uint64_t bytes, int memory, void** region) {
  const uint32_t kind = memory == nccl_plugins::kNcclHost   ? TUTTI_MEMORY_HOST
                        : memory == nccl_plugins::kNcclCuda ? TUTTI_MEMORY_CUDA
                                                            : 0u;
  if (kind == 0) return refuse(fmt::format("regMr: there is no memory of type {}", memory));
  auto made = std::make_unique<Region>();
  const std::lock_guard lock(mutex_);
  const int32_t code = network_.ops().register_memory(connection_, data, bytes, kind, &made->registration);
  if (code != TUTTI_OK) return fail(fmt::format("regMr fails for {} bytes", bytes), code);
  *region = made.release();
  return nccl_plugins::kNcclSuccess;
}

int Connection::add_dmabuf(void* data, uint64_t bytes, uint64_t offset, int fd, void** region) {
  if (!network_.has(TUTTI_NET_CAP_DMABUF)) return refuse("regMrDmaBuf: the network registers no dmabufs");
  auto made = std::make_unique<Region>();
  const std::lock_guard lock(mutex_);
  const int32_t code = network_.ops().register_dmabuf(connection_, data, bytes, offset, fd, &made->registration);
  if (code != TUTTI_OK) return fail(fmt::format("regMrDmaBuf fails for {} bytes", bytes), code);
  *region = made.release();
  return nccl_plugins::kNcclSuccess;
}

int Connection::remove_region(void* raw) {
  const std::unique_ptr<Region> region(static_cast<Region*>(raw));
  if (region == nullptr) return nccl_plugins::kNcclSuccess;
  const std::lock_guard lock(mutex_);
  const int32_t code = network_.ops().deregister_memory(connection_, region->registration);
  return code == TUTTI_OK ? nccl_plugins::kNcclSuccess : fail("deregMr fails", code);
}

Request& Connection::take() {
  if (free_.empty()) {
    pool_.emplace_back().connection = this;
    free_.push_back(&pool_.back());
  }
  Request& request = *free_.back();
  free_.pop_back();
  request.request = nullptr;
  return request;
}

void Connection::release(Request& request) {
  free_.push_back(&request);
}

template <class Post>
int Connection::post(std::string_view doing, int lengths, void** out, Post&& post) {
  *out = nullptr;
  const std::lock_guard lock(mutex_);
  Request& request = take();
  request.lengths = lengths;
  const int32_t code = post(&request.request);
  if (code == TUTTI_OK && request.request != nullptr) {
    *out = &request;
    return nccl_plugins::kNcclSuccess;
  }
  release(request);
  return code == TUTTI_OK || code == TUTTI_AGAIN ? nccl_plugins::kNcclSuccess : fail(doing, code);
}

int Connection::send(const void* data, uint64_t bytes, int tag, void* region, void** request) {
  return post("isend fails", 0, request, [&](void** made) {
    return network_.ops().send(connection_, data, bytes, static_cast<uint32_t>(tag), registration_of(region), made);
  });
}

int Connection::receive(const Buffers& buffers, void** request) {
  if (buffers.count > device_.most_receives) {
    return refuse(fmt::format("irecv of {} buffers; maxRecvs is {}", buffers.count, device_.most_receives));
  }
  return post("irecv fails", static_cast<int>(buffers.count), request, [&](void** made) {
    return network_.ops().recv(connection_, buffers.count, buffers.addresses.data(), buffers.bytes.data(),
                               buffers.tags.data(), buffers.registrations.data(), made);
  });
}

int Connection::flush(const Buffers& buffers, void** request) {
  *request = nullptr;
  if (buffers.count == 0 || !network_.has(TUTTI_NET_CAP_FLUSH)) return nccl_plugins::kNcclSuccess;
  return post("iflush fails", 0, request, [&](void** made) {
    return network_.ops().flush(connection_, buffers.count, buffers.addresses.data(), buffers.bytes.data(),
                                buffers.registrations.data(), made);
  });
}

/// A failed request stays in the pool until the connection is closed.
int Connection::test(Request& request, int* done, int* sizes) {
  *done = 0;
  std::array<uint64_t, Buffers::kMost> lengths{};
  const std::lock_guard lock(mutex_);
  int32_t is_done = 0;
  const int32_t code = network_.ops().test(request.request, &is_done, request.lengths > 0 ? lengths.data() : nullptr);
  if (code != TUTTI_OK) return fail("test fails", code);
  if (is_done == 0) return nccl_plugins::kNcclSuccess;
  for (int i = 0; sizes != nullptr && i < request.lengths; ++i) {
    sizes[i] = static_cast<int>(std::min<uint64_t>(lengths.at(static_cast<size_t>(i)), INT_MAX));
  }
  release(request);
  *done = 1;
  return nccl_plugins::kNcclSuccess;
}

}  // namespace tutti::nccl_net
