// SPDX-License-Identifier: Apache-2.0
#include "connecting.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti::net_ucx {
namespace {

constexpr std::chrono::milliseconds kPause{50};  // between two attempts

/// Failures that no further attempt can mend.
bool is_final(const Status& why) {
  return why.code() != Code::kRemote && why.code() != Code::kSystem;
}

std::string version_text(uint32_t version) {
  return fmt::format("{}.{}", version >> 16, version & 0xffff);
}

}  // namespace

Result<std::unique_ptr<sdk::Connecting>> Connecting::start(const tutti_net_handle& handle, Shared& shared) {
  Address address;
  std::memcpy(&address, handle.bytes, sizeof address);
  if (address.magic != kMagic || (address.family != AF_INET && address.family != AF_INET6)) {
    return Status(Code::kInvalidArgument,
                  "the handle is not one of net-ucx of this version; do all ranks use the same network plugin?");
  }
  return std::unique_ptr<sdk::Connecting>(new Connecting(address, shared));
}

Connecting::~Connecting() {
  connection_.reset();  // it takes the lock
  const std::lock_guard lock(shared_.lock);
  shared_.forget(line_);
  line_ = Fd();
}

Result<std::unique_ptr<sdk::Connection>> Connecting::advance() {
  std::unique_ptr<Connection> given_up;  // destroyed without the lock
  const std::lock_guard lock(shared_.lock);
  const LogOfUcx log(shared_.host);
  shared_.advance(round_);
  if (!line_.valid() && connection_ == nullptr && Clock::now() < pause_until_)
    return std::unique_ptr<sdk::Connection>();
  const Status advanced = advance_line();
  if (!advanced.ok()) {
    given_up = std::move(connection_);
    TUTTI_TRY(try_again(advanced));
    return std::unique_ptr<sdk::Connection>();
  }
  if (step_ != Step::kDone) return std::unique_ptr<sdk::Connection>();
  return std::unique_ptr<sdk::Connection>(std::move(connection_));
}

Status Connecting::advance_line() {
  if (!line_.valid() && connection_ == nullptr) TUTTI_TRY(open_line());
  while (step_ != Step::kDone) {
    TUTTI_ASSIGN(const bool moved, take_step());
    if (!moved) break;
    step_ = static_cast<Step>(static_cast<int>(step_) + 1);
    moved_ = 0;
  }
  // A listener whose process is stopped answers late; its host answers in its place, as long as the link is there.
  if (step_ != Step::kConnect) silent_since_.reset();
  return {};
}

Result<bool> Connecting::take_step() {
  const auto remote = [&](Result<bool> moved) {
    return moved.ok() || is_final(moved.status()) ? moved : Result<bool>(unreachable(moved.status()));
  };
  switch (step_) {
    case Step::kConnect:
      return connected();
    case Step::kChallenge: {
      TUTTI_ASSIGN(const bool whole,
                   remote(read_some(line_, std::as_writable_bytes(std::span(&challenge_, 1)), moved_)));
      if (whole) TUTTI_TRY(check_challenge());
      return whole;
    }
    case Step::kAddress: {
      TUTTI_ASSIGN(const bool whole, remote(read_some(line_, worker_, moved_)));
      if (whole) TUTTI_TRY(answer());
      return whole;
    }
    case Step::kHello:
      return remote(write_some(line_, std::as_bytes(std::span(&hello_, 1)), moved_));
    case Step::kProof: {
      TUTTI_ASSIGN(const bool whole, remote(read_some(line_, std::as_writable_bytes(std::span(proof_)), moved_)));
      if (whole) TUTTI_TRY(check_proof());
      if (whole) TUTTI_TRY(doubt(start_trial()));
      return whole;
    }
    case Step::kTrial: {
      TUTTI_ASSIGN(const bool stands, remote(connection_->hear_verdict()));  // before UCX tells that a peer has gone
      if (!stands) TUTTI_TRY(doubt(connection_->trial_failure()));
      return stands;
    }
    case Step::kDone:
      break;
  }
  return false;
}

Status Connecting::open_line() {
  if (!silent_since_) silent_since_ = Clock::now();
  step_ = Step::kConnect;
  moved_ = 0;
  line_ = Fd(socket(to_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!line_.valid()) return system_error("cannot make a socket", errno);
  set_options(line_, shared_.grace);
  TUTTI_TRY(shared_.watch(line_, stir_));
  if (::connect(line_.get(), to_.data(), to_.size) == 0 || errno == EINPROGRESS) return {};
  refused_ = errno == ECONNREFUSED;
  return unreachable(Status(Code::kRemote, std::generic_category().message(errno)));
}

Result<bool> Connecting::connected() {
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(line_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  refused_ = error == ECONNREFUSED;
  if (error != 0) return unreachable(Status(Code::kRemote, std::generic_category().message(error)));
  tcp_info info{};
  length = sizeof info;
  getsockopt(line_.get(), IPPROTO_TCP, TCP_INFO, &info, &length);
  if (info.tcpi_state != TCP_SYN_SENT) return true;
  if (Clock::now() - *silent_since_ <= silence_limit(shared_.grace)) return false;
  return unreachable(Status(Code::kRemote, std::generic_category().message(ETIMEDOUT)));
}

Status Connecting::check_challenge() {
  if (challenge_.magic != kMagic || challenge_.address_bytes == 0 || challenge_.address_bytes > kMostAddressBytes) {
    return {Code::kVersionMismatch,
            fmt::format("{} does not speak the protocol of this version of net-ucx; do all ranks "
                        "use the same version?",
                        to_.text())};
  }
  if (challenge_.ucx_version != ucx_version()) {
    return {Code::kVersionMismatch,
            fmt::format("{} has UCX {}, and this host has UCX {}; install the same version on all hosts", to_.text(),
                        version_text(challenge_.ucx_version), version_text(ucx_version()))};
  }
  worker_.resize(challenge_.address_bytes);
  return {};
}

Status Connecting::answer() {
  hello_ = {};
  TUTTI_ASSIGN(hello_.nonce, sdk::make_nonce());
  TUTTI_ASSIGN(hello_.proof, sdk::prove(address_.secret, sdk::Side::kConnector, challenge_.nonce, hello_.nonce,
                                        proved(challenge_, worker_)));
  return {};
}

Status Connecting::check_proof() const {
  TUTTI_ASSIGN(const sdk::Proof expected, sdk::prove(address_.secret, sdk::Side::kAcceptor, challenge_.nonce,
                                                     hello_.nonce, proved(challenge_, worker_)));
  if (sdk::same(expected, proof_)) return {};
  return {Code::kMismatch,
          fmt::format("{} cannot prove that it is the rank it pretends to be; another process has taken its port",
                      to_.text())};
}

/// A listener that ends takes its worker along, and then UCX finds no way to it. So the first failure of UCX leads to a
/// further attempt, which an ended listener refuses. If the listener answers again, there really is no way.
Status Connecting::doubt(const Status& failure) {
  if (failure.code() != Code::kUnsupported || std::exchange(has_doubted_, true)) return failure;
  return {Code::kRemote, std::string(failure.text())};
}

/// Ok: a further attempt follows.
Status Connecting::try_again(const Status& why) {
  shared_.forget(line_);
  line_ = Fd();
  if (refused_ || is_final(why)) return why;
  const auto now = Clock::now();
  auto& since = step_ > Step::kConnect ? closed_since_ : silent_since_;
  if (!since) since = now;
  if (now - *since > silence_limit(shared_.grace)) return why;
  pause_until_ = now + kPause;
  return {};
}

Status Connecting::unreachable(const Status& why) const {
  if (refused_) {
    return {Code::kRemote, fmt::format("{} refuses connections; the process there may have ended", to_.text())};
  }
  if (step_ > Step::kConnect) {
    return {Code::kRemote,
            fmt::format("{} closes each connection before it stands: {}; do all ranks use this version of "
                        "net-ucx, and has the process there free descriptors (ulimit -n)?",
                        to_.text(), why.text())};
  }
  return {Code::kRemote,
          fmt::format("{} cannot be reached: {}; check the link, settings.net.ucx.interface and firewalls", to_.text(),
                      why.text())};
}

Status Connecting::start_trial() {
  const bool same =
      challenge_.namespace_id == shared_.namespace_id || challenge_.namespace_id == 0 || shared_.namespace_id == 0;
  connection_ = std::make_unique<Connection>(shared_, std::move(line_), challenge_.id, true);
  TUTTI_TRY(connection_->watch_line());
  return connection_->open_endpoint(worker_, same);
}

}  // namespace tutti::net_ucx
