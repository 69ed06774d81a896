// SPDX-License-Identifier: Apache-2.0
// A network plugin, loaded as Tutti loads it, without the rest of Tutti.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin/loader.h"
#include "tutti/plugin/network.h"

namespace tutti::net_bench {

/// Waits for requests: polls, and sleeps on the network's event descriptor after `spin` without movement. A wait that
/// sees no movement for `limit` throws.
struct Patience {
  std::chrono::microseconds spin{-1};  ///< negative: never sleeps
  std::chrono::seconds limit{30};
};

/// One device of an open network. Failures throw std::runtime_error with the text of the plugin. One thread.
class Network {
 public:
  /// `settings`: keys and values of the configuration, on top of the variables TUTTI_*.
  Network(const std::string& name, std::vector<std::pair<std::string, std::string>> settings, uint32_t device,
          Patience patience);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const tutti_net_properties& properties() const { return properties_; }
  const tutti_net_handle& handle() const { return handle_; }

  /// The connection to a listener; blocks.
  void* connect(const tutti_net_handle& handle);
  /// The next connection of the own listener; blocks.
  void* accept();
  void* register_memory(void* connection, std::vector<uint8_t>& memory);
  void deregister_memory(void* connection, void* registration);

  /// Null: not now.
  void* send(void* connection, const std::vector<uint8_t>& memory, uint64_t bytes, void* registration);
  void* recv(void* connection, std::vector<uint8_t>& memory, uint64_t bytes, void* registration);
  /// Whether the request is done. `bytes` of a receive that is done must be as expected.
  bool test(void* request, uint64_t bytes);

  /// Calls `step` until it returns true. `step` returns whether all is done, and adds the moved bytes to its argument.
  template <class Step>
  void wait(const char* what, Step&& step) {
    uint64_t moved = 0;
    if (step(moved)) return;
    auto since = std::chrono::steady_clock::now();
    for (uint64_t seen = moved, polls = 1; !step(moved); ++polls) {
      // To read the clock takes as long as to poll shared memory, and the raw peers poll without a clock.
      if (patience_.spin.count() < 0 && polls % kPollsPerClock != 0) continue;
      const auto now = std::chrono::steady_clock::now();
      if (moved != std::exchange(seen, moved)) since = now;
      if (now - since > patience_.limit) give_up(what);
      if (patience_.spin.count() >= 0 && now - since >= patience_.spin) sleep();
    }
  }

 private:
  static constexpr uint64_t kPollsPerClock = 256;

  [[noreturn]] void give_up(const char* what) const;
  void check(int32_t code, const char* doing) const;
  void sleep();

  Patience patience_;
  std::shared_ptr<plugin::Plugin> plugin_;
  const tutti_network_ops* ops_ = nullptr;
  std::string name_;
  uint32_t device_;
  int event_fd_ = -1;
  tutti_net_properties properties_{};
  tutti_net_handle handle_{};
  void* context_ = nullptr;
  void* listener_ = nullptr;
  std::vector<void*> connections_;
};

}  // namespace tutti::net_bench
