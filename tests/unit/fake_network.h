// SPDX-License-Identifier: Apache-2.0
// A network in the memory of this process, with faults on demand: connections that break, messages of other lengths.
// Messages of different tags overtake each other: a receive completes when it is tested and its messages are there.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/plugin/network.h"
#include "unit/private_memory.h"

namespace tutti::test {

/// One plugin, which serves any number of contexts. Faults may be set by any thread.
class FakeNetwork {
 public:
  static const tutti_network_ops* ops();

  /// Ends every connection: earlier data still arrives, then requests fail with `code`.
  void break_all(int32_t code, std::string why);
  /// Cuts some connections, each with this probability, as links do: later messages vanish, and perhaps messages under
  /// way. The receiver notices within 40 ms, the sender within 40 ms, after its next sends, or never.
  void cut_some(double probability, uint64_t seed);
  /// Cuts the next connection from its beginning. The receiver notices at once, the sender never.
  void cut_next_connection() { cuts_next_ = true; }
  /// Cuts the connection that was made as number `index`: messages vanish. The receiver notices at once, the sender
  /// never.
  void cut(size_t index);
  /// While true, connections are not made yet.
  void delay_connections(bool delays) { delays_ = delays; }
  /// Changes messages on their way, from now on.
  void change_messages(std::function<void(std::vector<uint8_t>&)> change);
  /// Added to the length that receives report.
  void misreport(int64_t bytes) { extra_bytes_ = bytes; }
  /// While `code` is not TUTTI_OK, each receive fails with it at once.
  void fail_receives(int32_t code, std::string why);
  /// Receives that failed so.
  int failed_receives() const { return failed_receives_; }
  /// Connects to the listener that was opened as number `index`, and sends `message`, if any.
  void visit(size_t index, const std::vector<uint8_t>& message);
  /// The capabilities of the plugin, TUTTI_NET_CAP_*, and the kinds of memory that its device registers.
  void set_capabilities(uint64_t capabilities, uint32_t memory) { capabilities_ = capabilities, memory_ = memory; }
  /// The limit of connections that the device reports.
  void limit_connections(uint32_t limit) { max_connections_ = limit; }
  /// While true, no connection can be made.
  void refuse_connections(bool refuses) { refuses_ = refuses; }
  /// The number of devices, equally fast, that contexts find from now on. Initially 1, of unknown speed.
  void set_devices(uint32_t count) { devices_ = count; }
  /// Connections that were made from a device to a listener of a device.
  int connections(uint32_t from, uint32_t to);
  /// Lets only the plugin access the memory at `view`, through `alias`.
  void grant(const PrivateMemory& memory);
  /// Messages that were sent with a tag from `first` to `last`, and flushes.
  int sent(uint32_t first, uint32_t last) { return count(sent_, first, last); }
  /// Receives that were posted for such a tag.
  int posted(uint32_t first, uint32_t last) { return count(posted_, first, last); }
  /// While true, the network takes no send with a tag from `first` to `last`.
  void refuse_sends(bool refuses, uint32_t first, uint32_t last) {
    const std::lock_guard lock(mutex_);
    refused_ = refuses ? std::pair(first, last) : std::pair(1u, 0u);
  }
  /// Sends with this tag are not done until release_sends(). Their messages arrive all the same.
  void hold_sends(uint32_t tag) { held_tag_ = tag; }
  void release_sends() { held_tag_ = -1; }
  /// How often sends with this tag were found not to be done.
  int held(uint32_t tag) { return count(held_, tag, tag); }
  int flushes() const { return flushes_; }
  /// Connections that the accepting side holds open.
  int open_receivers() const { return open_receivers_; }
  /// Calls of accept.
  int accepts() const { return accepts_; }
  /// Why the last call failed.
  std::string take_failure();

 private:
  struct Calls;  // the entries of the table

  struct Message {
    uint32_t tag = 0;
    std::vector<uint8_t> data;
  };
  using Clock = std::chrono::steady_clock;
  struct Pipe {
    std::deque<Message> messages;
    int32_t code = TUTTI_OK;                                         ///< not ok: it has ended
    bool is_cut = false;                                             ///< messages vanish
    int vanishing = 0;                                               ///< messages that vanish before a send fails
    Clock::time_point receiver_fails_at = Clock::time_point::max();  ///< with is_cut
    Clock::time_point sender_fails_at = Clock::time_point::max();
    void cut(int messages_vanish, Clock::time_point receiver_fails);
    /// What the end finds: the code of the pipe, or the failure of a cut.
    int32_t receiver_code() const;
    int32_t sender_code() const;
  };
  struct Listener {
    FakeNetwork* network = nullptr;
    uint32_t device = 0;
    std::deque<std::shared_ptr<Pipe>> waiting = {};
  };
  struct Connection;
  struct Part {
    uint8_t* address = nullptr;
    uint64_t bytes = 0;
    uint32_t tag = 0;
    bool on_device = false;
  };
  struct Request {
    Connection* connection = nullptr;
    std::vector<Part> parts;
    bool is_send = false;
    bool has_failed = false;  ///< it is gone: no later call names it
  };
  struct Connection {
    FakeNetwork* network = nullptr;
    std::shared_ptr<Pipe> pipe;
    bool sends = false;
    std::deque<std::unique_ptr<Request>> receives = {};  ///< oldest first
    std::map<uint32_t, Request> held_sends = {};         ///< by tag
    std::vector<std::unique_ptr<Request>> failed = {};   ///< kept, so that a call that names one is found
    void give_up(Request& request);
  };
  int count(const std::map<uint32_t, int>& by_tag, uint32_t first, uint32_t last);
  int32_t fail(int32_t code);
  /// The granted memory that holds an address, or null.
  const PrivateMemory* memory_at(const void* address);
  /// The plugin's address of a buffer; null where the plugin has no access.
  uint8_t* reach(const void* address, uint64_t bytes, bool on_device);
  static bool has_all(const Pipe& pipe, const Request& request);
  static bool is_oldest(const Connection& connection, const Request& request);

  std::mutex mutex_;
  std::vector<Listener*> listeners_;
  std::vector<std::weak_ptr<Pipe>> pipes_;
  std::function<void(std::vector<uint8_t>&)> change_;
  std::string why_ = "the peer has closed the connection";
  std::atomic<int64_t> extra_bytes_{0};
  int32_t recv_code_ = TUTTI_OK;
  std::atomic<int> failed_receives_{0};
  std::atomic<int> open_receivers_{0};
  std::atomic<int> flushes_{0};
  std::atomic<int> accepts_{0};
  uint64_t capabilities_ = 0;
  uint32_t max_connections_ = 0;
  std::atomic<bool> refuses_{false};
  std::atomic<bool> delays_{false};
  std::atomic<bool> cuts_next_{false};
  std::atomic<uint32_t> devices_{1};
  std::map<std::pair<uint32_t, uint32_t>, int> connections_;  // by devices of both ends
  uint32_t memory_ = TUTTI_MEMORY_HOST;
  std::atomic<int64_t> held_tag_{-1};
  std::pair<uint32_t, uint32_t> refused_{1, 0};   // the first and the last tag
  std::map<uint32_t, int> sent_, posted_, held_;  // by tag
  std::vector<const PrivateMemory*> granted_;
  std::map<uint8_t*, std::vector<uint8_t>> unflushed_;  // received for the device, by address
};

}  // namespace tutti::test
