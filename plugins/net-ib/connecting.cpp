// SPDX-License-Identifier: Apache-2.0
#include "connecting.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "handshake.h"
#include "sender.h"

namespace tutti::net_ib {
namespace {

constexpr std::chrono::milliseconds kPause{50};  // between two attempts

}  // namespace

Result<std::unique_ptr<Connecting>> Connecting::start(const Shared& shared, std::vector<Port> ports,
                                                      const tutti_net_handle& raw) {
  TUTTI_ASSIGN(const Handle handle, read_handle(raw));
  return std::unique_ptr<Connecting>(new Connecting(shared, std::move(ports), handle));
}

Result<std::unique_ptr<sdk::Connection>> Connecting::advance() {
  if (!socket_.valid() && Clock::now() < pause_until_) return std::unique_ptr<sdk::Connection>();
  if (const Status advanced = advance_steps(); !advanced.ok()) TUTTI_TRY(try_again(advanced));
  if (step_ != Step::kDone) return std::unique_ptr<sdk::Connection>();
  shared_.events->forget(socket_);  // the link watches it
  link_->keep(std::move(socket_));
  return std::unique_ptr<sdk::Connection>(std::make_unique<Sender>(std::move(link_)));
}

std::string Connecting::there() const {
  return fmt::format("{} port {}", handle_.ip.to_string(), handle_.port);
}

Status Connecting::begin() {
  step_ = Step::kConnect;
  read_ = 0;
  TUTTI_ASSIGN(socket_, connect_from(exchange(), handle_.ip, handle_.port));
  watch_silence(socket_, shared_.settings.peer_loss);
  return shared_.events->watch(socket_.get(), stir_);
}

Status Connecting::advance_steps() {
  if (!socket_.valid()) TUTTI_TRY(begin());
  if (step_ == Step::kConnect) {
    TUTTI_ASSIGN(const bool connected, is_connected(socket_, refused_));
    if (!connected) {
      const bool late = Clock::now() - silent_since_ > shared_.settings.peer_loss;
      return late ? Status(Code::kRemote, errno_text(ETIMEDOUT)) : Status();
    }
    step_ = Step::kChallenge;
  }
  if (step_ == Step::kChallenge) {
    TUTTI_ASSIGN(const bool whole, read(&challenge_, sizeof challenge_));
    if (!whole) return {};
    TUTTI_TRY(say_hello());
    step_ = Step::kWelcome;
  }
  TUTTI_ASSIGN(const bool whole, read(&welcome_, sizeof welcome_));
  if (!whole) return {};
  TUTTI_TRY(check_welcome(handle_, challenge_, hello_, welcome_, there()));
  TUTTI_TRY(link_->connect(welcome_.rails, true));
  const uint8_t ready = link_->connected();
  TUTTI_TRY(write(&ready, sizeof ready));
  step_ = Step::kDone;
  return {};
}

/// Ok: a further attempt follows. A failure that no attempt can mend is returned.
Status Connecting::try_again(const Status& why) {
  shared_.events->forget(socket_);
  socket_.reset();
  link_.reset();
  const Clock::time_point now = Clock::now();
  const bool late = now - silent_since_ > shared_.settings.peer_loss;
  if (why.code() != Code::kRemote || refused_ || late)
    return why.with_context(
        fmt::format("cannot reach {} from {} ({})", there(), exchange().ip.to_string(), exchange().name));
  pause_until_ = now + kPause;
  return {};
}

/// True: all bytes of the step are there.
Result<bool> Connecting::read(void* to, size_t bytes) {
  const ssize_t got = ::recv(socket_.get(), static_cast<uint8_t*>(to) + read_, bytes - read_, MSG_DONTWAIT);
  if (got == 0) return Status(Code::kRemote, "the other end closed the connection");
  if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
    return Status(Code::kRemote, errno_text(errno));
  if (got > 0) {
    read_ += static_cast<size_t>(got);
    silent_since_ = Clock::now();
  }
  if (read_ < bytes) return false;
  read_ = 0;
  return true;
}

Status Connecting::write(const void* from, size_t bytes) {  // the buffer of a new socket has room
  const ssize_t sent = ::send(socket_.get(), from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent == static_cast<ssize_t>(bytes) ? Status() : Status(Code::kRemote, errno_text(errno));
}

Status Connecting::say_hello() {
  TUTTI_TRY(check_challenge(challenge_, there()));
  TUTTI_ASSIGN(link_, Link::create(shared_, ports_));
  hello_ = {};
  hello_.rails = link_->endpoints();
  TUTTI_ASSIGN(hello_.nonce, sdk::make_nonce());
  TUTTI_ASSIGN(hello_.proof,
               sdk::prove(handle_.secret, sdk::Side::kConnector, challenge_.nonce, hello_.nonce, proved(hello_.rails)));
  return write(&hello_, sizeof hello_);
}

}  // namespace tutti::net_ib
