// SPDX-License-Identifier: Apache-2.0
// One connection: tagged messages of UCP in one direction, and a line that tells when the other side has gone.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "shared.h"
#include "tutti/sdk/network.h"
#include "wire.h"

namespace tutti::net_ucx {

/// A posted send or receive. Lives in its connection's pool. A message that UCX has done with is for the thread of the
/// connection alone, without the lock: `ended` says so.
struct Message : sdk::Request {
  std::atomic<bool> ended{false};  ///< stored when UCX has done with it, loaded by test()
  bool used = false;
  ucs_status_t status = UCS_OK;
  uint64_t room = 0;          ///< bytes of the buffer
  uint64_t bytes = 0;         ///< length of the message, once received
  void* operation = nullptr;  ///< UCX's, until it ends
};

/// The result of ucp_mem_map.
struct Registration {
  ucp_mem_h memory = nullptr;
};

class Connection : public sdk::Connection, private Endpoint::User {
 public:
  /// `id`: the receiver's number of this connection.
  Connection(Shared& shared, Fd line, uint32_t id, bool sends);
  /// Tells the other side how many messages were sent, and ends all that UCX does with buffers of this connection.
  ~Connection() override;

  /// Reports events of the line. Before the connection is handed out.
  Status watch_line() { return shared_.watch(line_, stir_); }
  /// A sender's endpoint to the receiver's worker, and the trial of it, before the connection is handed out.
  /// `same_namespace`: both ends are in one network namespace, or on different machines.
  Status open_endpoint(std::span<const std::byte> worker, bool same_namespace);
  /// For a sender: whether the trial has arrived, as the receiver says. kUnsupported if it has not arrived in time,
  /// kRemote if the receiver has closed the line.
  Result<bool> hear_verdict();
  /// For a sender before the verdict: kUnsupported if UCX cannot carry the trial, ok if it may still do so. The
  /// receiver may have ended, although its line does not tell that yet.
  Status trial_failure();
  /// For a receiver: whether the trial has come. Says so to the sender, also that it came too late. kRemote if the
  /// sender has gone, or the trial is late.
  Result<bool> await_trial(Clock::time_point deadline);

  Result<void*> register_memory(void* address, uint64_t bytes, uint32_t memory) override;
  Status deregister_memory(void* registration) override;
  Status send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) override;
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& request) override;
  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override;

 private:
  static constexpr size_t kMostMessages = 128;

  void endpoint_failed(const std::string& why) override;
  Status start_trial();
  Status no_arrival(std::string_view why) const;
  void end_wait_for_trial();
  Message* take_message(uint64_t room);
  void free(Message& message) { message.used = false, free_.at(free_count_++) = &message; }
  ucs_status_ptr_t post_send(Message& message, const void* address, uint64_t bytes, uint64_t tag, void* registration);
  ucs_status_ptr_t post_receive(Message& message, void* address, uint64_t tag, void* registration);
  Status posted(Message& message, ucs_status_ptr_t operation);
  Status complete(Message& message, bool& done, uint64_t* bytes);
  /// The failure of the connection, if it has one.
  const Status& state() {
    if (stir_.stirred || gone_ || shared_.ucx->abandoned() || (endpoint_ != nullptr && endpoint_->has_failed())) look();
    return lost_;
  }
  void look();
  void look_at_line();
  void judge_silence();
  void lose(const std::string& why);
  Status failure_of(const Message& message);
  bool has_operations() const;
  bool quiesce();
  void say_farewell();
  bool has_farewell() const { return farewell_read_ == sizeof farewell_; }
  void close_sender();
  void close_receiver();
  void abandon();
  void discard_unexpected();
  uint64_t ucp_tag(uint32_t tag) const { return (uint64_t{id_} << 32) | tag; }

  Shared& shared_;
  Fd line_;
  Stir stir_;
  const uint32_t id_;
  const bool sends_;
  Endpoint* endpoint_ = nullptr;  // of a sender
  std::string ends_;              // "10.0.0.1:4000 to 10.0.0.2:4001 (tcp/eth0)", for messages
  std::array<Message, kMostMessages> messages_;
  std::array<Message*, kMostMessages> free_{};
  size_t free_count_ = 0;
  uint64_t round_ = 0;
  uint64_t completed_ = 0;  // messages, without failures
  Trial trial_text_;
  Message* trial_ = nullptr;  // until the verdict
  std::optional<Verdict> verdict_;
  bool awaits_trial_ = false;  // of a receiver

  Status lost_;        // not ok: nothing more completes
  Farewell farewell_;  // of the other side
  size_t farewell_read_ = 0;
  std::optional<Clock::time_point> gone_;  // since when the other side has closed the line
  std::string gone_because_;
};

}  // namespace tutti::net_ucx
