// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::net_ucx {
namespace {

constexpr std::chrono::milliseconds kDrainTime{100};  // for data of a peer that went without a farewell

void message_ended(Message& message, void* operation, ucs_status_t status) {
  message.status = status;
  message.ended = true;
  message.operation = nullptr;
  ucp_request_free(operation);
}

void send_ended(void* operation, ucs_status_t status, void* raw) {
  auto& message = *static_cast<Message*>(raw);
  message.ucx->send_ended();
  message_ended(message, operation, status);
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
      ends_(fmt::format("{} to {}", (sends_ ? local_place(line_) : remote_place(line_)).text(),
                        (sends_ ? remote_place(line_) : local_place(line_)).text())) {
  if (!sends_) shared_.expect_first();
  for (Message& message : messages_) {
    message.connection = this;
    message.ucx = shared_.ucx.get();
  }
}

/// The endpoint reports failures of the peer. UCX cannot do that over shared memory: there the line alone tells of
/// them.
Status Connection::open_endpoint(std::span<const std::byte> worker) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(worker.data());
  params.err_handler = {.cb = endpoint_failed, .arg = this};
  ucs_status_t status = UCS_OK;
  for (const ucp_err_handling_mode_t mode : {UCP_ERR_HANDLING_MODE_PEER, UCP_ERR_HANDLING_MODE_NONE}) {
    params.err_mode = mode;
    status = ucp_ep_create(shared_.ucx->sends(), &params, &endpoint_);
    if (status == UCS_OK) return {};
  }
  endpoint_ = nullptr;
  return {
      Code::kUnsupported,
      fmt::format("UCX finds no way from {}: {}; check settings.net.ucx.transports, settings.net.ucx.devices and the "
                  "variables UCX_* of both sides",
                  ends_, reason_of(status))};
}

Result<void*> Connection::register_memory(void* address, uint64_t bytes, uint32_t memory) {
  if (memory != TUTTI_MEMORY_HOST) {
    return Status(Code::kUnsupported, "net-ucx registers memory of the host only");
  }
  if (bytes == 0) return static_cast<void*>(nullptr);
  const std::lock_guard lock(shared_.mutex);
  const LogOfUcx log(shared_.host);
  ucp_mem_map_params_t params{};
  params.field_mask =
      UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = address;
  params.length = bytes;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  auto registration = std::make_unique<Registration>();
  const ucs_status_t status = ucp_mem_map(shared_.ucx->context(), &params, &registration->memory);
  if (status == UCS_OK) return static_cast<void*>(registration.release());
  return Status(Code::kSystem, fmt::format("UCX does not register {} bytes at {}: {}; check the limit of locked memory "
                                           "(ulimit -l)",
                                           bytes, address, reason_of(status)));
}

Status Connection::deregister_memory(void* raw) {
  const std::unique_ptr<Registration> registration(static_cast<Registration*>(raw));
  if (registration == nullptr) return {};
  const std::lock_guard lock(shared_.mutex);
  const LogOfUcx log(shared_.host);
  const ucs_status_t status = ucp_mem_unmap(shared_.ucx->context(), registration->memory);
  return status == UCS_OK ? Status() : Status(Code::kSystem, "UCX does not deregister memory: " + reason_of(status));
}

/// Null: too many outstanding.
Message* Connection::take_message(uint64_t bytes, uint32_t tag) {
  const auto free = std::find_if(messages_.begin(), messages_.end(), [](const Message& one) { return !one.used; });
  if (free == messages_.end()) return nullptr;
  free->used = true;
  free->ended = false;
  free->status = UCS_OK;
  free->room = bytes;
  free->bytes = 0;
  free->tag = tag;
  free->operation = nullptr;
  order_.push_back(&*free);
  return &*free;
}

void Connection::release(Message& message) {
  message.used = false;
  std::erase(order_, &message);
}

Status Connection::posted(Message& message, ucs_status_ptr_t operation, sdk::Request*& request) {
  if (UCS_PTR_IS_ERR(operation)) {
    const ucs_status_t status = UCS_PTR_STATUS(operation);
    release(message);
    if (status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE) return {};  // not now
    lose("UCX: " + reason_of(status));
    return lost_;
  }
  if (operation == nullptr) message.ended = true;
  if (!message.ended) {  // else the callback has freed it
    message.operation = operation;
    if (sends_) shared_.ucx->send_began();
  }
  request = &message;
  return {};
}

Status Connection::send(const void* address, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) {
  if (!sends_) return {Code::kInvalidArgument, "this end of the connection receives"};
  const std::lock_guard lock(shared_.mutex);
  const LogOfUcx log(shared_.host);
  look_at_line();
  judge_silence();
  TUTTI_TRY(lost_);
  Message* const message = take_message(bytes, tag);
  if (message == nullptr) return {};
  ucp_request_param_t param = parameters(*message, registration);
  param.cb.send = send_ended;
  return posted(*message, ucp_tag_send_nbx(endpoint_, address, bytes, ucp_tag(tag), &param), request);
}

Status Connection::recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                        void* const* registrations, sdk::Request*& request) {
  if (sends_) return {Code::kInvalidArgument, "this end of the connection sends"};
  if (count != 1) return {Code::kInvalidArgument, fmt::format("a receive takes 1 buffer, not {}", count)};
  const std::lock_guard lock(shared_.mutex);
  const LogOfUcx log(shared_.host);
  look_at_line();
  judge_silence();
  TUTTI_TRY(lost_);
  Message* const message = take_message(bytes[0], tags[0]);
  if (message == nullptr) return {};
  ucp_request_param_t param = parameters(*message, registrations[0]);
  // The callback tells the length, also of a message that is there already.
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = receive_ended;
  return posted(
      *message,
      ucp_tag_recv_nbx(shared_.ucx->receives(), addresses[0], bytes[0], ucp_tag(tags[0]), ~uint64_t{0}, &param),
      request);
}

Status Connection::test(sdk::Request& raw, bool& done, uint64_t* bytes) {
  auto& message = static_cast<Message&>(raw);
  const std::lock_guard lock(shared_.mutex);
  const LogOfUcx log(shared_.host);
  if (!message.ended) shared_.advance(round_);
  if (!message.ended || !is_next_of_its_tag(message)) {
    look_at_line();
    judge_silence();
    return message.ended ? Status() : lost_;
  }
  const Status failure = failure_of(message);
  if (failure.ok()) {
    if (!sends_ && completed_ == 0) shared_.first_came();
    ++completed_;
    done = true;
    if (bytes != nullptr && !sends_) *bytes = message.bytes;
  }
  release(message);
  return failure;
}

/// UCX may end a short message before a long one that was posted earlier.
bool Connection::is_next_of_its_tag(const Message& message) const {
  for (const Message* const earlier : order_) {
    if (earlier == &message) return true;
    if (earlier->tag == message.tag && !earlier->ended) return false;
  }
  return true;
}

Status Connection::failure_of(const Message& message) {
  if (message.status == UCS_OK) return {};
  if (message.status == UCS_ERR_MESSAGE_TRUNCATED) {
    return {Code::kMismatch, fmt::format("a message of {} bytes on the connection {} is longer than its buffer of {} "
                                         "bytes",
                                         message.bytes, ends_, message.room)};
  }
  if (lost_.ok()) lose("UCX: " + reason_of(message.status));
  return lost_;
}

/// Called within progress.
void Connection::endpoint_failed(void* connection, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<Connection*>(connection)->lose("UCX: " + reason_of(status));
}

void Connection::lose(const std::string& why) {
  if (!lost_.ok()) return;
  lost_ = Status(Code::kRemote, fmt::format("lost the connection {}: {}", ends_, why));
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

/// A receiver waits for data that the peer sent before it went.
void Connection::judge_silence() {
  if (shared_.ucx->abandoned()) lose("another connection could not be closed");
  if (!gone_ || !lost_.ok()) return;
  const bool told = farewell_read_ == sizeof farewell_;
  const auto limit = told ? silence_limit(shared_.grace) : kDrainTime;
  if ((told && completed_ >= farewell_.sent) || Clock::now() - *gone_ > limit) lose(gone_because_);
}

bool Connection::has_operations() const {
  return std::any_of(order_.begin(), order_.end(), [](const Message* one) { return one->operation != nullptr; });
}

/// Waits until UCX touches no buffer of this connection; false if this takes too long.
bool Connection::quiesce() {
  const auto end = Clock::now() + Shared::kCloseLimit;
  while (has_operations() && Clock::now() < end) shared_.ucx->progress();
  return !has_operations();
}

Connection::~Connection() {
  const std::lock_guard lock(shared_.mutex);
  const LogOfUcx log(shared_.host);
  if (shared_.ucx->abandoned()) return;
  if (sends_) {
    close_sender();
  } else {
    close_receiver();
  }
}

void Connection::close_sender() {
  if (endpoint_ == nullptr) return;
  const auto ended = std::count_if(order_.begin(), order_.end(),
                                   [](const Message* one) { return one->ended && one->status == UCS_OK; });
  const Farewell farewell{completed_ + static_cast<uint64_t>(ended)};
  size_t moved = 0;
  if (lost_.ok()) static_cast<void>(write_some(line_, std::as_bytes(std::span(&farewell, 1)), moved));
  // A whole connection lets out what it has sent. A broken one, or one with sends under way, ends at once.
  const bool forced = !lost_.ok() || has_operations();
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = forced ? UCP_EP_CLOSE_FLAG_FORCE : 0;
  for (const Message* const message : order_) {
    if (message->operation != nullptr) ucp_request_cancel(shared_.ucx->sends(), message->operation);
  }
  shared_.leave_to_end(ucp_ep_close_nbx(endpoint_, &param));
  if (!quiesce()) abandon();
}

void Connection::close_receiver() {
  if (completed_ == 0) shared_.first_came();
  for (const Message* const message : order_) {
    if (message->operation != nullptr) ucp_request_cancel(shared_.ucx->receives(), message->operation);
  }
  if (!quiesce()) return abandon();
  discard_unexpected();
}

void Connection::abandon() {
  shared_.host.log(TUTTI_LOG_WARN,
                   fmt::format("UCX does not end what is under way on the connection {}; all connections "
                               "of this communicator are given up",
                               ends_));
  shared_.ucx->abandon();
}

/// Messages without a receive would stay in the worker's memory.
void Connection::discard_unexpected() {
  constexpr uint64_t kIdMask = ~uint64_t{0} << 32;
  ucp_tag_recv_info_t info{};
  while (ucp_tag_message_h const message = ucp_tag_probe_nb(shared_.ucx->receives(), ucp_tag(0), kIdMask, 1, &info)) {
    const ucp_request_param_t param{};
    shared_.leave_to_end(ucp_tag_msg_recv_nbx(shared_.ucx->receives(), nullptr, 0, message, &param));
  }
}

}  // namespace tutti::net_ucx
