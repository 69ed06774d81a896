// SPDX-License-Identifier: Apache-2.0
// One side of a rule: a context of the plugin with a listener, and a line to the other side.
//
// A violation ends the process of the side at once, after it was reported: objects of a faulty plugin are not safe to
// destroy.
#pragma once

#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "plugin/loader.h"
#include "tools/plugin_test/calls.h"
#include "tools/plugin_test/rule.h"
#include "tutti/plugin/network.h"

namespace tutti::tools::plugin_test {

/// The result of an entry that may fail.
struct Outcome {
  int32_t code = TUTTI_OK;
  std::string text;  ///< the plugin's reason
  bool done = false;
};

class Side {
 public:
  struct Options {
    const Rule* rule = nullptr;
    uint32_t role = 0;  ///< 0 or 1
    Where where = Where::kOneProcess;
    uint64_t seed = 1;  ///< the same on both sides
    uint64_t large_bytes = 0;
    uint32_t device = 0;
    int line = -1;     ///< a SEQPACKET socket to the other side
    int results = -1;  ///< a pipe to the watching process
    Watched* watched = nullptr;
    std::shared_ptr<plugin::Plugin> plugin;
  };
  explicit Side(Options options);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  bool is_first() const { return options_.role == 0; }
  const Options& options() const { return options_; }
  uint64_t capabilities() const { return options_.plugin->capabilities(); }
  const tutti_net_properties& properties() const { return properties_; }
  const tutti_network_ops& ops() const { return *ops_; }
  void* context() const { return context_; }
  void* listener() const { return listener_; }
  const tutti_net_handle& peer_handle() const { return peer_handle_; }
  Calls& calls() { return calls_; }
  /// The same numbers on both sides, as long as both draw equally many.
  std::mt19937_64& random() { return random_; }
  uint64_t draw(uint64_t least, uint64_t most) { return std::uniform_int_distribution<uint64_t>(least, most)(random_); }

  // Results. They end the process.
  [[noreturn]] void violate(std::string_view rule, const std::string& text);
  [[noreturn]] void violate(const std::string& text) { violate(options_.rule->number, text); }
  [[noreturn]] void skip(const std::string& reason);

  // The line to the other side.
  void tell(std::span<const std::byte> message);
  std::vector<std::byte> hear();
  template <class T>
  void tell(const T& value) {
    tell(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  T hear_as() {
    const std::vector<std::byte> message = hear();
    T value{};
    if (message.size() != sizeof value) end_quietly();
    std::memcpy(&value, message.data(), sizeof value);
    return value;
  }
  /// Returns when the other side has come here, too.
  void meet();

  // Calls of entries. `call` fails the rule for any code but TUTTI_OK and TUTTI_AGAIN; `attempt` returns the code.
  Outcome attempt(Entry entry, const std::function<int32_t()>& body);
  int32_t call(Entry entry, const std::function<int32_t()>& body);
  void call_void(Entry entry, const std::function<void()>& body);

  /// Repeats `step` until it returns true. After 5 s, the rule is violated: "no <event> within 5 s".
  void wait(const std::string& what, const std::function<bool()>& step);
  /// The same, but returns false at the end of `seconds`.
  bool wait_for(const std::string& what, double seconds, const std::function<bool()>& step);

  /// A connection that stands. `sender`: the role that connects and sends.
  void* link(uint32_t sender);
  /// As link(), in a rule in which connections come that are not introduced.
  void tolerate_guests() { tolerates_guests_ = true; }
  /// Accepts a connection if there is a connection, as the host does in each round.
  void accept_guests();
  void close(void* connection);

  /// `memory`: a TUTTI_MEMORY_* value.
  void* register_memory(void* connection, void* address, uint64_t bytes, uint32_t memory = TUTTI_MEMORY_HOST);
  void deregister_memory(void* connection, void* registration);
  /// Posts, and repeats the call while nothing can be posted.
  void* send(void* connection, const void* address, uint64_t bytes, void* registration, uint32_t tag = 0);
  void* recv(void* connection, void* address, uint64_t bytes, void* registration, uint32_t tag = 0);
  bool test(void* request, uint64_t* bytes = nullptr);
  Outcome attempt_test(void* request, uint64_t* bytes = nullptr);
  /// Waits for a request; the length that it reports.
  uint64_t finish(void* request, const std::string& what);

 private:
  struct Guest {
    void* connection = nullptr;
    void* registration = nullptr;
    void* request = nullptr;
    std::unique_ptr<std::array<uint64_t, 2>> hello;
    bool has_failed = false;
  };
  void report(std::string_view result, std::string_view rule, const std::string& text);
  [[noreturn]] void end_quietly();
  void note(const std::string& what);
  void* connect_link(uint64_t serial);
  void* accept_link(uint64_t serial);
  bool read_hello(Guest& guest, uint64_t serial);

  Options options_;
  Calls calls_;
  const tutti_network_ops* ops_ = nullptr;
  std::mt19937_64 random_;
  tutti_net_properties properties_{};
  void* context_ = nullptr;
  void* listener_ = nullptr;
  void* accept_state_ = nullptr;
  tutti_net_handle peer_handle_{};
  std::deque<Guest> guests_;
  std::vector<void*> links_;
  uint64_t serial_ = 0;
  bool tolerates_guests_ = false;
};

/// Bytes that depend on `seed` alone.
void fill(std::span<uint8_t> bytes, uint64_t seed);
/// "byte 17 of 4096 is 3, not 200", of the first byte that fill() would set to a different value; empty: none.
std::string difference(std::span<const uint8_t> bytes, uint64_t seed);

/// Memory that is registered for one connection, with poison at both ends.
class Buffer {
 public:
  Buffer(Side& side, void* connection, uint64_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint8_t* at(uint64_t offset) { return memory_.data() + kMargin + offset; }
  std::span<uint8_t> span(uint64_t offset, uint64_t bytes) { return {at(offset), bytes}; }
  void* registration() const { return registration_; }
  void* send(uint64_t offset, uint64_t bytes, uint32_t tag = 0);
  void* recv(uint64_t offset, uint64_t bytes, uint32_t tag = 0);
  /// Fills all with the poison.
  void poison();
  /// The first byte in [from, to) that is not poison any more, as text; empty: none. Negative: the margin in front.
  std::string touched(int64_t from, int64_t to);
  int64_t size() const { return static_cast<int64_t>(memory_.size()) - 2 * kMargin; }
  static constexpr int64_t kMargin = 64;

 private:
  static constexpr uint8_t kPoison = 0xA5;
  Side& side_;
  void* connection_;
  std::vector<uint8_t> memory_;
  void* registration_ = nullptr;
};

}  // namespace tutti::tools::plugin_test
