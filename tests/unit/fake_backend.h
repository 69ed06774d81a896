// SPDX-License-Identifier: Apache-2.0
// A back end that computes nothing: it records the functions that a communicator calls, and fails or waits at request.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "backend/enqueuing.h"
#include "backend/factory.h"

namespace tutti::test {

/// The device of one rank. It outlives the back end. Any thread.
class FakeDevice {
 public:
  /// The functions that were called, in order: "serve", "run all_reduce 8", "messages 2", "gather 2", "end 7", "stop".
  std::vector<std::string> did() const;
  size_t count(const std::string& event) const;
  void add(std::string event);
  /// Returns once `event` was added so often; false after a minute without it.
  bool wait_for(const std::string& event, size_t times = 1) const;

  /// The result of all later launches.
  void set_result(const Status& result);
  /// All later launches wait until the communicator stops its back end, and then end as aborted. Each adds "held" to
  /// `recorder`.
  void hold(FakeDevice& recorder);
  void set_fault(const Status& fault);
  /// Shows a wait that began before `ago`, for a rank.
  void set_wait(std::chrono::seconds ago, uint32_t peer);
  /// Lets data that was sent stay in the process.
  void set_stuck();

  Status launch(const std::string& event);
  Status fault() const;
  std::optional<backend::Waiting::Wait> wait() const;
  bool is_stuck() const;

  /// The factory of a communicator with this device. `number`: its number; -1: without streams.
  backend::Factory factory(int number = -1);
  /// The kind of link to the other devices of the host, and the PCI addresses of all ranks' devices. Set before the
  /// communicator is made.
  uint32_t link = TUTTI_LINK_SHM;
  std::vector<std::string> addresses;
  std::vector<uint32_t> strand_ctas;  ///< by protocol
  /// The records and the selector of the rank, while its communicator exists.
  backend::Ledger* ledger = nullptr;
  const tuner::Selector* selector = nullptr;
  bool had_gpu_options = false;

 private:
  size_t count_locked(const std::string& event) const;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> did_;
  Status result_;
  Status fault_;
  std::optional<backend::Waiting::Wait> wait_;
  FakeDevice* recorder_ = nullptr;  ///< set: launches wait
  bool stuck_ = false;
};

}  // namespace tutti::test
