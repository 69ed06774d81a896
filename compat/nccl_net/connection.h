// SPDX-License-Identifier: Apache-2.0
// One connection of NCCL over a connection of Tutti. Requests of NCCL are named by their address alone, so each request
// knows its connection.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "nccl_net/network.h"
#include "tutti/status.h"

namespace tutti::nccl_net {

class Connection;
class Context;

/// A send, a receive or a flush that the network plugin has taken. Lives in its connection's pool.
struct Request {
  Connection* connection = nullptr;
  void* request = nullptr;  ///< of the network plugin
  int lengths = 0;          ///< messages whose lengths are reported: 0 but for receives
};

/// Memory that is registered for one connection. The network plugin's own pointer may be null, and NCCL's may not.
struct Region {
  void* registration = nullptr;
};

/// The buffers of one receive, or of one flush.
struct Buffers {
  static constexpr uint32_t kMost = 8;

  uint32_t count = 0;
  std::array<void*, kMost> addresses{};
  std::array<uint64_t, kMost> bytes{};
  std::array<uint32_t, kMost> tags{};
  std::array<void*, kMost> registrations{};

  void add(void* address, uint64_t size, uint32_t tag, void* region);
};

/// Any thread, but none after the destructor has begun. Functions return NCCL's results. The first failure is a warning
/// in NCCL's log; each later failure is most often a consequence of it.
class Connection {
 public:
  enum class Role { kSender, kReceiver };

  /// Owns `connection`.
  Connection(std::shared_ptr<Context> context, const Device& device, void* connection, Role role);
  /// Closes at once, requests outstanding or not.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// `memory`: kNcclHost or kNcclCuda.
  int add_region(void* data, uint64_t bytes, int memory, void** region);
  int add_dmabuf(void* data, uint64_t bytes, uint64_t offset, int fd, void** region);
  int remove_region(void* region);

  // *request is null on return where nothing could be posted now.
  int send(const void* data, uint64_t bytes, int tag, void* region, void** request);
  /// 1 <= buffers.count <= Buffers::kMost.
  int receive(const Buffers& buffers, void** request);
  /// *request is null on return where there is nothing to wait for.
  int flush(const Buffers& buffers, void** request);
  /// `sizes` may be null. A request that is done is gone.
  int test(Request& request, int* done, int* sizes);

 private:
  Request& take();
  void release(Request& request);
  template <class Post>
  int post(std::string_view doing, int lengths, void** out, Post&& post);
  int fail(std::string_view doing, int32_t code);
  int refuse(std::string_view why);

  const std::shared_ptr<Context> context_;
  Network& network_;
  const Device& device_;
  void* const connection_;
  const Role role_;
  std::mutex mutex_;  // guards all below, and the calls of the network plugin
  std::deque<Request> pool_;
  std::vector<Request*> free_;
  bool has_failed_ = false;
};

}  // namespace tutti::nccl_net
