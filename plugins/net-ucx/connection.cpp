// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "descriptors.h"

namespace tutti::net_ucx {
namespace {

constexpr std::chrono::milliseconds kDrainTime{100};  // for data of a peer that went without a farewell

void message_ended(Message& message, void* operation, ucs_status_t status) {
  message.status = status;
  message.operation = nullptr;
  ucp.request_free(operation);
  message.ended.store(true, std::memory_order_release);
}

void send_ended(void* operation, ucs_status_t status, void* raw) {
  message_ended(*static_cast<Message*>(raw), operation, status);
}

void receive_ended(void* operation, ucs_status_t status, const ucp_tag_recv_info_t* info, void* raw) {
  auto& message = *static_cast<Message*>(raw);
  message.bytes = info->length;
  message_ended(message, operation, status);
}

ucp_request_param_t parameters(Message& message, void* registration) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = &message;
  if (registration != nullptr) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    param.memh = static_cast<Registration*>(registration)->memory;
  }
  return param;
}

}  // namespace

Connection::Connection(Shared& shared, Fd line, uint32_t id, bool sends)
    : shared_(shared),
      line_(std::move(line)),
      id_(id),
      sends_(sends),
      ends_(fmt::format("{} to {}", (sends_ ? local_address(line_) : remote_address(line_)).text(),
                        (sends_ ? remote_address(line_) : local_address(line_)).text())),
      awaits_trial_(!sends) {
  for (Message& message : messages_) {
    message.connection = this;
    free(message);
  }
  if (sends_) return;
  shared_.expect_trial();
  trial_ = take_message(sizeof trial_text_);
  static_cast<void>(
      posted(*trial_, post_receive(*trial_, &trial_text_, id_, nullptr)));  // await_trial() tells failures
}

Status Connection::open_endpoint(std::span<const std::byte> worker, bool same_namespace) {
  TUTTI_TRY(require_descriptors(kEndpointDescriptors, "a connection"));
  const ucs_status_t status = shared_.endpoints->take(worker, same_namespace, *this, endpoint_);
  if (status == UCS_OK) return start_trial();
  return {Code::kUnsupported,
          fmt::format("UCX finds no way from {}: {}; {}let settings.net.ucx.transports (or UCX_TLS) and "
                      "settings.net.ucx.devices (or UCX_NET_DEVICES) of both sides name a network that joins them",
                      ends_, reason_of(status),
                      same_namespace ? ""
                                     : "the two ends are in different network namespaces, where UCX's shared memory "
                                       "cannot wake a process that sleeps; ")};
}

Status Connection::start_trial() {
  const std::string ways = ways_of(endpoint_->get());
  ways.copy(trial_text_.ways.data(), trial_text_.ways.size() - 1);
  if (!ways.empty()) ends_ += fmt::format(" ({})", ways);
  trial_ = take_message(0);
  return posted(*trial_, post_send(*trial_, &trial_text_, sizeof trial_text_, id_, nullptr));
}

Result<bool> Connection::hear_verdict() {
  if (!verdict_) {
    Verdict verdict{};
    size_t moved = 0;
    TUTTI_ASSIGN(const bool told, read_some(line_, std::as_writable_bytes(std::span(&verdict, 1)), moved));
    if (told) verdict_ = verdict;
  }
  if (verdict_ && *verdict_ != Verdict::kArrived)
    return no_arrival(fmt::format("none arrived within {} s", trial_limit(shared_.grace).count()));
  if (!verdict_ || !trial_->ended) return false;
  free(*std::exchange(trial_, nullptr));
  return true;
}

Status Connection::trial_failure() {
  judge_silence();
  return lost_.ok() ? Status() : no_arrival(lost_.text());
}

Status Connection::no_arrival(std::string_view why) const {
  return {Code::kUnsupported,
          fmt::format("UCX's messages do not get from {}, although a TCP connection does: {}; check firewalls, "
                      "settings.net.ucx.transports, settings.net.ucx.devices and the variables UCX_* of both sides",
                      ends_, why)};
}

Result<bool> Connection::await_trial(Clock::time_point deadline) {
  look_at_line();
  if (gone_) return Status(Code::kRemote, gone_because_);
  TUTTI_TRY(lost_);
  if (!trial_->ended && Clock::now() <= deadline) return false;
  const bool tried = trial_->ended && trial_->status == UCS_OK && trial_->bytes == sizeof trial_text_;
  const Verdict verdict = tried ? Verdict::kArrived : Verdict::kMissing;
  size_t moved = 0;  // a line that has carried so little has room
  TUTTI_TRY(write_some(line_, std::as_bytes(std::span(&verdict, 1)), moved).status());
  if (tried) {
    end_wait_for_trial();
    free(*std::exchange(trial_, nullptr));
    const std::string_view ways(trial_text_.ways.data(), strnlen(trial_text_.ways.data(), trial_text_.ways.size()));
    if (!ways.empty()) ends_ += fmt::format(" ({})", ways);
    return true;
  }
  return Status(Code::kRemote, fmt::format("UCX's messages do not get from {}, although a TCP connection does", ends_));
}

void Connection::end_wait_for_trial() {
  if (std::exchange(awaits_trial_, false)) shared_.trial_ended();
}

Result<void*> Connection::register_memory(void* address, uint64_t bytes, uint32_t memory) {
  if (memory != TUTTI_MEMORY_HOST) {
    return Status(Code::kUnsupported, "net-ucx registers memory of the host only");
  }
  if (bytes == 0) return static_cast<void*>(nullptr);
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = address;
  params.length = bytes;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  auto registration = std::make_unique<Registration>();
  const ucs_status_t status = ucp.mem_map(shared_.ucx->context(), &params, &registration->memory);
  if (status == UCS_OK) return static_cast<void*>(registration.release());
  return Status(Code::kSystem, fmt::format("UCX does not register {} bytes at {}: {}; check the limit of locked memory "
                                           "(ulimit -l)",
                                           bytes, address, reason_of(status)));
}

Status Connection::deregister_memory(void* raw) {
  const std::unique_ptr<Registration> registration(static_cast<Registration*>(raw));
  if (registration == nullptr) return {};
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  const ucs_status_t status = ucp.mem_unmap(shared_.ucx->context(), registration->memory);
  return status == UCS_OK ? Status() : Status(Code::kSystem, "UCX does not deregister memory: " + reason_of(status));
}

/// Null: too many outstanding.
Message* Connection::take_message(uint64_t room) {
  if (free_count_ == 0) return nullptr;
  Message* const message = free_.at(--free_count_);
  message->ended.store(false, std::memory_order_relaxed);
  message->used = true;
  message->status = UCS_OK;
  message->room = room;
  return message;
}

ucs_status_ptr_t Connection::post_send(Message& message, const void* address, uint64_t bytes, uint64_t tag,
                                       void* registration) {
  ucp_request_param_t param = parameters(message, registration);
  param.cb.send = send_ended;
  return ucp.tag_send_nbx(endpoint_->get(), address, bytes, tag, &param);
}

ucs_status_ptr_t Connection::post_receive(Message& message, void* address, uint64_t tag, void* registration) {
  ucp_request_param_t param = parameters(message, registration);
  // The callback tells the length, also of a message that is there already.
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = receive_ended;
  return ucp.tag_recv_nbx(shared_.ucx->worker(), address, message.room, tag, ~uint64_t{0}, &param);
}

/// Takes UCX's answer. The message is free again where nothing could be posted now (ok, not used).
Status Connection::posted(Message& message, ucs_status_ptr_t operation) {
  if (operation == nullptr) {
    message.ended.store(true, std::memory_order_relaxed);
    return {};
  }
  if (UCS_PTR_IS_PTR(operation)) {
    if (message.ended) return {};  // the callback has freed the operation
    message.operation = operation;
    return {};
  }
  const ucs_status_t status = UCS_PTR_STATUS(operation);
  free(message);
  if (status != UCS_ERR_NO_MEMORY && status != UCS_ERR_NO_RESOURCE) lose("UCX: " + reason_of(status));
  return lost_;
}

Status Connection::send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) {
  if (!sends_) return {Code::kInvalidArgument, "this end of the connection receives"};
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  TUTTI_TRY(state());
  Message* const message = take_message(bytes);
  if (message == nullptr) return {};
  TUTTI_TRY(posted(*message, post_send(*message, address, bytes, ucp_tag(tag), registration)));
  if (message->used) request = message;
  return {};
}

Status Connection::recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                        void* const* registrations, sdk::Request*& request) {
  if (sends_) return {Code::kInvalidArgument, "this end of the connection sends"};
  if (count != 1) return {Code::kInvalidArgument, fmt::format("a receive takes 1 buffer, not {}", count)};
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  TUTTI_TRY(state());
  Message* const message = take_message(bytes[0]);
  if (message == nullptr) return {};
  TUTTI_TRY(posted(*message, post_receive(*message, addresses[0], ucp_tag(tags[0]), registrations[0])));
  if (message->used) request = message;
  return {};
}

Status Connection::test(sdk::Request& raw, bool& done, uint64_t* bytes) {
  auto& message = static_cast<Message&>(raw);
  if (!message.ended.load(std::memory_order_acquire)) {
    const std::lock_guard lock(shared_.lock);
    const LogOfUcx log(shared_.host);
    shared_.advance(round_);
    if (!message.ended.load(std::memory_order_relaxed)) return state();
  }
  return complete(message, done, bytes);
}

Status Connection::complete(Message& message, bool& done, uint64_t* bytes) {
  if (message.status != UCS_OK) {
    free(message);
    return failure_of(message);
  }
  ++completed_;
  done = true;
  if (bytes != nullptr && !sends_) *bytes = message.bytes;
  free(message);
  return {};
}

Status Connection::failure_of(const Message& message) {
  if (message.status == UCS_ERR_MESSAGE_TRUNCATED) {
    return {Code::kMismatch, fmt::format("a message of {} bytes on the connection {} is longer than its buffer of {} "
                                         "bytes",
                                         message.bytes, ends_, message.room)};
  }
  const std::lock_guard lock(shared_.lock);
  if (lost_.ok()) lose("UCX: " + reason_of(message.status));
  return lost_;
}

/// Shuts the line, so that the other side learns of it, too.
void Connection::lose(const std::string& why) {
  if (!lost_.ok()) return;
  lost_ = Status(Code::kRemote, fmt::format("lost the connection {}: {}", ends_, why));
  ::shutdown(line_.get(), SHUT_RDWR);
}

/// UCX completes small sends before the peer has them. So a sender may have no operation that tells of the failure.
void Connection::endpoint_failed(const std::string& why) {
  if (trial_ == nullptr) lose(why);
}

void Connection::look() {
  look_at_line();
  judge_silence();
}

/// The line carries nothing but a farewell, so it has events only when the other side goes.
void Connection::look_at_line() {
  if (!std::exchange(stir_.stirred, false) || gone_) return;
  for (;;) {
    const auto bytes = std::as_writable_bytes(std::span(&farewell_, 1));
    const size_t before = farewell_read_;
    const auto read = read_some(line_, bytes, farewell_read_);
    if (read.ok() && farewell_read_ == bytes.size()) {
      gone_because_ = "the peer closed it";
      break;
    }
    if (!read.ok()) {
      const bool closed = read.status().text().find("reset") != std::string::npos;
      gone_because_ = closed ? "the peer's process closed it, or has ended"
                             : fmt::format("{}; check the link to the peer's host", read.status().text());
      break;
    }
    if (farewell_read_ == before) return;
  }
  gone_ = Clock::now();
  if (sends_) lose(gone_because_);
}

/// A receiver waits for the messages that the other side sent before it went.
void Connection::judge_silence() {
  if (shared_.ucx->abandoned()) lose("another connection could not be closed");
  if (endpoint_ != nullptr && endpoint_->has_failed()) lose(endpoint_->failure());
  if (!gone_ || !lost_.ok()) return;
  const bool told = has_farewell();
  const auto limit = told ? silence_limit(shared_.grace) : kDrainTime;
  if ((told && completed_ >= farewell_.sent) || Clock::now() - *gone_ > limit) lose(gone_because_);
}

bool Connection::has_operations() const {
  return std::any_of(messages_.begin(), messages_.end(), [](const Message& one) { return one.operation != nullptr; });
}

/// Lets UCX work until it touches no buffer of this connection; false if that takes too long.
bool Connection::quiesce() {
  const auto end = Clock::now() + Shared::kCloseLimit;
  while (has_operations() && Clock::now() < end) shared_.ucx->progress();
  return !has_operations();
}

Connection::~Connection() {
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  if (!shared_.ucx->abandoned()) {
    if (sends_) {
      close_sender();
    } else {
      close_receiver();
    }
  }
  shared_.forget(line_);
  ::shutdown(line_.get(), SHUT_RDWR);  // a forked child may have a copy of the line
  line_ = Fd();
}

/// Tells the other side that this side closes the connection, rather than that its process ends.
void Connection::say_farewell() {
  if (!lost_.ok() || trial_ != nullptr) return;
  const auto ended = std::count_if(messages_.begin(), messages_.end(),
                                   [](const Message& one) { return one.used && one.ended && one.status == UCS_OK; });
  const Farewell farewell{completed_ + static_cast<uint64_t>(ended)};
  size_t moved = 0;
  static_cast<void>(write_some(line_, std::as_bytes(std::span(&farewell, 1)), moved));
}

/// The endpoint lets the messages out that are complete here. Sends under way get kCloseLimit, then the endpoint ends.
/// If the peer has gone without a farewell, the endpoint ends at once.
void Connection::close_sender() {
  if (endpoint_ == nullptr) return;
  say_farewell();
  for (const Message& message : messages_) {
    if (message.operation != nullptr) ucp.request_cancel(shared_.ucx->worker(), message.operation);
  }
  const bool is_whole = lost_.ok() ? trial_ == nullptr : has_farewell();
  if (is_whole && quiesce()) return shared_.endpoints->give_back(*endpoint_);
  shared_.endpoints->end(*endpoint_);
  if (!quiesce()) abandon();
}

void Connection::close_receiver() {
  say_farewell();
  end_wait_for_trial();
  for (const Message& message : messages_) {
    if (message.operation != nullptr) ucp.request_cancel(shared_.ucx->worker(), message.operation);
  }
  if (!quiesce()) return abandon();
  discard_unexpected();
}

/// Removes messages that no receive will match: they would stay in the worker's memory.
void Connection::discard_unexpected() {
  constexpr uint64_t kIdMask = ~uint64_t{0} << 32;
  ucp_tag_recv_info_t info{};
  while (ucp_tag_message_h const message = ucp.tag_probe_nb(shared_.ucx->worker(), ucp_tag(0), kIdMask, 1, &info)) {
    const ucp_request_param_t param{};
    shared_.leave_to_end(ucp.tag_msg_recv_nbx(shared_.ucx->worker(), nullptr, 0, message, &param));
  }
}

void Connection::abandon() {
  shared_.host.log(TUTTI_LOG_WARN,
                   fmt::format("UCX does not end what is under way on the connection {}; all connections "
                               "of this communicator are given up",
                               ends_));
  shared_.ucx->abandon();
}

}  // namespace tutti::net_ucx
