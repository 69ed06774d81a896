// SPDX-License-Identifier: Apache-2.0
// A network in the memory of this process, with faults on demand: connections that break, messages of other lengths.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/plugin/network.h"

namespace tutti::test {

/// One plugin, which serves any number of contexts. Faults may be set by any thread.
class FakeNetwork {
 public:
  static const tutti_network_ops* ops();

  /// Ends every connection: what was sent before still arrives, then requests fail with `code`.
  void break_all(int32_t code, std::string why);
  /// Changes messages on their way, from now on.
  void change_messages(std::function<void(std::vector<uint8_t>&)> change);
  /// Added to the length that receives report.
  void misreport(int64_t bytes) { extra_bytes_ = bytes; }
  /// Connects to the listener that was opened as number `index`, and sends `message`, if any.
  void visit(size_t index, const std::vector<uint8_t>& message);
  /// Connections that the accepting side holds open.
  int open_receivers() const { return open_receivers_; }
  /// Why the last call failed.
  std::string take_failure();

 private:
  struct Calls;  // the entries of the table

  struct Pipe {
    std::deque<std::vector<uint8_t>> messages;
    int32_t code = TUTTI_OK;  ///< not ok: it has ended
  };
  struct Listener {
    FakeNetwork* network = nullptr;
    std::deque<std::shared_ptr<Pipe>> waiting;
  };
  struct Request;
  struct Connection {
    FakeNetwork* network = nullptr;
    std::shared_ptr<Pipe> pipe;
    bool sends = false;
    std::deque<std::unique_ptr<Request>> receives;  ///< oldest first
  };
  struct Request {
    Connection* connection = nullptr;
    uint8_t* address = nullptr;
    uint64_t bytes = 0;
  };
  int32_t fail(int32_t code);

  std::mutex mutex_;
  std::vector<Listener*> listeners_;
  std::vector<std::weak_ptr<Pipe>> pipes_;
  std::function<void(std::vector<uint8_t>&)> change_;
  std::string why_;
  std::atomic<int64_t> extra_bytes_{0};
  std::atomic<int> open_receivers_{0};
};

}  // namespace tutti::test
