// SPDX-License-Identifier: Apache-2.0
#include "tls.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace tutti::net_socket {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr size_t kRecordsAtOnce = 8;  // that are encrypted for one system call
constexpr size_t kReadBytes = size_t{128} << 10;
constexpr const char* kCipher = "TLS_AES_128_GCM_SHA256";
constexpr std::array<unsigned char, 2> kCipherNumber = {0x13, 0x01};

/// Why the last call of OpenSSL in this thread failed.
std::string openssl_reason() {
  const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
  return reason != nullptr ? reason : "OpenSSL gives no reason";
}

/// While it lives, a write to a closed connection raises no SIGPIPE in this thread. OpenSSL's own writes need it, since
/// they know no MSG_NOSIGNAL.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const int error = errno;
    const timespec now{};
    if (!was_pending_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
};

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

/// The end of OpenSSL that touches the socket. It collects written bytes, so that one system call sends many records.
/// Below it is OpenSSL's own socket where the kernel may take over: it knows how to give keys to the kernel.
struct TlsBio {
  static TlsStream& stream(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* from, int bytes) {
    TlsStream& to = stream(bio);
    BIO_clear_retry_flags(bio);
    if (to.kernel_bio_ != nullptr && BIO_get_ktls_send(to.kernel_bio_)) {  // alerts: data do not come this way
      const NoSigpipe guard;
      const int written = BIO_write(to.kernel_bio_, from, bytes);
      if (written <= 0 && BIO_should_retry(to.kernel_bio_)) BIO_set_retry_write(bio);
      return written;
    }
    to.hears_since_.reset();
    to.out_.insert(to.out_.end(), from, from + bytes);
    return bytes;
  }

  static int read(BIO* bio, char* to, int bytes) {
    TlsStream& from = stream(bio);
    BIO_clear_retry_flags(bio);
    const bool kernel = from.kernel_bio_ != nullptr && BIO_get_ktls_recv(from.kernel_bio_);
    const ssize_t got = kernel ? BIO_read(from.kernel_bio_, to, bytes)
                               : ::recv(from.socket_, to, static_cast<size_t>(bytes), MSG_DONTWAIT);
    if (got > 0) {
      if (!from.ready_ && !from.hears_since_) from.hears_since_ = Clock::now();
      return static_cast<int>(got);
    }
    if (got == 0) {
      from.eof_ = true;
    } else if (kernel ? BIO_should_retry(from.kernel_bio_) != 0 : would_block(errno)) {
      BIO_set_retry_read(bio);
    } else {
      from.socket_error_ = errno;
    }
    return static_cast<int>(got);
  }

  static long control(BIO* bio, int command, long number, void* pointer) {
    TlsStream& of = stream(bio);
    switch (command) {
      case BIO_CTRL_FLUSH:
        BIO_clear_retry_flags(bio);
        if (of.ready_ || of.flush()) return 1;  // send() flushes what it has encrypted
        if (of.socket_error_ == 0) BIO_set_retry_write(bio);
        return 0;
      case BIO_CTRL_EOF:
        return of.eof_ ? 1 : 0;
      case BIO_CTRL_PUSH:
      case BIO_CTRL_POP:
        return 0;
      default:  // among them the commands of the kernel's TLS
        return of.kernel_bio_ != nullptr ? BIO_ctrl(of.kernel_bio_, command, number, pointer) : 0;
    }
  }
};

Result<std::shared_ptr<const Tls>> Tls::create(Options options) {
  std::shared_ptr<Tls> tls(new Tls(std::move(options)));
  tls->context_.reset(SSL_CTX_new(TLS_method()));
  tls->method_.reset(BIO_meth_new(BIO_TYPE_SOURCE_SINK, "net-socket"));
  SSL_CTX* const context = tls->context_.get();
  BIO_METHOD* const method = tls->method_.get();
  const bool made = context != nullptr && method != nullptr && BIO_meth_set_write(method, TlsBio::write) == 1 &&
                    BIO_meth_set_read(method, TlsBio::read) == 1 && BIO_meth_set_ctrl(method, TlsBio::control) == 1 &&
                    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_ciphersuites(context, kCipher) == 1 && SSL_CTX_set_num_tickets(context, 0) == 1;
  if (!made) {
    return Status(Code::kUnsupported, fmt::format("{} does not offer TLS 1.3 with {} ({}); correct its configuration, "
                                                  "or set settings.net.socket.tls to off on all ranks",
                                                  OpenSSL_version(OPENSSL_VERSION), kCipher, openssl_reason()));
  }
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  SSL_CTX_set_psk_use_session_callback(context, TlsStream::client_session);
  SSL_CTX_set_psk_find_session_callback(context, TlsStream::server_session);
  return std::shared_ptr<const Tls>(std::move(tls));
}

void Tls::tell(bool sends, const std::string& text) const {
  if (options_.log && !told_[sends ? 1 : 0].exchange(true)) options_.log(text);
}

Result<std::unique_ptr<TlsStream>> TlsStream::create(std::shared_ptr<const Tls> tls, int socket, Role role,
                                                     const StreamKey& key) {
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(tls), socket, role, key));
  TUTTI_TRY(stream->open());
  return stream;
}

Status TlsStream::open() {
  ERR_clear_error();
  ssl_.reset(SSL_new(tls_->context()));
  BIO* const bio = BIO_new(tls_->method());
  if (ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    return {Code::kInternal, fmt::format("OpenSSL cannot make a stream with TLS: {}", openssl_reason())};
  }
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  if (tls_->options().kernel && attach_kernel()) SSL_set_options(ssl_.get(), SSL_OP_ENABLE_KTLS);
  if (role_ == Role::kReceives) {
    SSL_set_accept_state(ssl_.get());
  } else {
    SSL_set_connect_state(ssl_.get());
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);  // refuses every certificate
  }
  return {};
}

/// Prepares the socket for the kernel's TLS, which begins later.
bool TlsStream::attach_kernel() {
  if (setsockopt(socket_, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") != 0) {
    kernel_error_ = errno;
    return false;
  }
  kernel_bio_ = BIO_new(BIO_s_socket());
  if (kernel_bio_ == nullptr) return false;
  BIO_set_fd(kernel_bio_, socket_, BIO_NOCLOSE);
  return true;
}

TlsStream::~TlsStream() {
  if (ssl_ != nullptr && ready_ && broken_ == 0) {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    flush();
    ERR_clear_error();
  }
  ssl_.reset();
  BIO_free(kernel_bio_);
}

SSL_SESSION* TlsStream::make_session() const {
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl_.get(), kCipherNumber.data());
  SSL_SESSION* const session = SSL_SESSION_new();
  const auto* const key = reinterpret_cast<const unsigned char*>(key_.key.data());
  if (cipher != nullptr && session != nullptr && SSL_SESSION_set1_master_key(session, key, key_.key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 && SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int TlsStream::client_session(SSL* ssl, const EVP_MD* /*digest*/, const unsigned char** identity,
                              size_t* identity_bytes, SSL_SESSION** session) {
  const auto& stream = *static_cast<const TlsStream*>(SSL_get_app_data(ssl));
  *identity = reinterpret_cast<const unsigned char*>(stream.key_.identity.data());
  *identity_bytes = stream.key_.identity.size();
  *session = stream.make_session();
  return *session != nullptr ? 1 : 0;
}

/// A client with another name gets no session. The handshake then fails, since this side has no certificate.
int TlsStream::server_session(SSL* ssl, const unsigned char* identity, size_t identity_bytes, SSL_SESSION** session) {
  const auto& stream = *static_cast<const TlsStream*>(SSL_get_app_data(ssl));
  const auto& own = stream.key_.identity;
  *session = nullptr;
  if (identity_bytes != own.size() || CRYPTO_memcmp(identity, own.data(), own.size()) != 0) return 1;
  *session = stream.make_session();
  return *session != nullptr ? 1 : 0;
}

int TlsStream::shake_hands() {
  if (broken_ != 0) return refuse();
  if (!flush()) return refuse();
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  if (result != 1) return check_patience(explain(result));
  if (SSL_session_reused(ssl_.get()) == 0) {  // without the key that both sides have
    broken_ = EBADMSG;
    failure_ = "the other side does not use the pre-shared key";
    return refuse();
  }
  become_ready();
  return 0;
}

/// Each side sends its part of the handshake at once, so that a part that stops in the middle was changed on its way.
int TlsStream::check_patience(int result) {
  if (errno != EAGAIN || !hears_since_ || Clock::now() - *hears_since_ < tls_->options().patience) return result;
  broken_ = EBADMSG;
  failure_ = "the other side's part of the handshake has no end";
  return refuse();
}

void TlsStream::become_ready() {
  ready_ = true;
  kernel_sends_ = role_ == Role::kSends && kernel_bio_ != nullptr && BIO_get_ktls_send(kernel_bio_);
  kernel_receives_ = role_ == Role::kReceives && kernel_bio_ != nullptr && BIO_get_ktls_recv(kernel_bio_);
  if (!uses_kernel()) SSL_set_read_ahead(ssl_.get(), 1);  // one system call reads many records
  tls_->tell(role_ == Role::kSends, who_works());
}

std::string TlsStream::who_works() const {
  std::string who;
  if (uses_kernel()) {
    who = "kernel TLS is in use";
  } else if (!tls_->options().kernel) {
    who = "kernel TLS is not in use (settings.net.socket.tls is user)";
  } else if (kernel_error_ != 0) {
    who =
        fmt::format("kernel TLS is not in use (the kernel has none: {}; try modprobe tls)", errno_text(kernel_error_));
  } else {
    who = fmt::format("kernel TLS is not in use ({} does not use it here)", OpenSSL_version(OPENSSL_VERSION));
  }
  return fmt::format("TLS 1.3 with {}, {}: {}", SSL_get_cipher_name(ssl_.get()),
                     role_ == Role::kSends ? "sending" : "receiving", who);
}

/// False: the socket takes no more now, or socket_error_ says why it never will.
bool TlsStream::flush() {
  while (out_begin_ < out_.size()) {
    const ssize_t sent =
        ::send(socket_, out_.data() + out_begin_, out_.size() - out_begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (!would_block(errno)) socket_error_ = errno;
      return false;
    }
    out_begin_ += static_cast<size_t>(sent);
  }
  out_.clear();
  out_begin_ = 0;
  return true;
}

/// The stream is broken, or the socket takes no more now. Sets errno, returns -1.
int TlsStream::refuse() {
  if (broken_ == 0) broken_ = socket_error_;
  errno = broken_ != 0 ? broken_ : EAGAIN;
  return -1;
}

/// The same, for the result of a call of OpenSSL that failed.
int TlsStream::explain(int result) {
  const int why = SSL_get_error(ssl_.get(), result);
  const bool waits = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
  if (socket_error_ == 0 && !waits) {
    broken_ = eof_ ? ENODATA : EBADMSG;
    if (!eof_) failure_ = openssl_reason();
    flush();  // the alert, which tells the other side
  }
  ERR_clear_error();
  return refuse();
}

/// Encrypts one record, or several where `bytes` is longer.
bool TlsStream::write_record(const void* from, size_t bytes) {
  if (records_ >= tls_->options().records_per_key && !renew_key()) return false;
  size_t written = 0;
  ERR_clear_error();
  if (SSL_write_ex(ssl_.get(), from, bytes, &written) != 1 || written != bytes) return false;
  records_ += (bytes + kRecordBytes - 1) / kRecordBytes;
  encrypted_ += bytes;
  return true;
}

bool TlsStream::renew_key() {
  records_ = 0;
  return SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
}

/// From the front of the vectors, at most kRecordsAtOnce records. Small pieces share a record.
bool TlsStream::encrypt(std::span<const iovec> vectors) {
  size_t skip = 0;  // of the first vector
  for (size_t room = kRecordsAtOnce * kRecordBytes; room > 0 && !vectors.empty();) {
    const auto* const from = static_cast<const uint8_t*>(vectors.front().iov_base) + skip;
    const size_t bytes = vectors.front().iov_len - skip;
    if (bytes >= kRecordBytes || (vectors.size() == 1 && bytes > 0)) {
      const size_t part = std::min(room, bytes < kRecordBytes ? bytes : bytes / kRecordBytes * kRecordBytes);
      if (!write_record(from, part)) return false;
      room -= part;
      skip += part;
    } else {
      gather_.clear();
      while (!vectors.empty() && gather_.size() < kRecordBytes) {
        const auto* const piece = static_cast<const uint8_t*>(vectors.front().iov_base) + skip;
        const size_t part = std::min(vectors.front().iov_len - skip, kRecordBytes - gather_.size());
        gather_.insert(gather_.end(), piece, piece + part);
        skip += part;
        if (skip < vectors.front().iov_len) break;
        vectors = vectors.subspan(1);
        skip = 0;
      }
      if (!gather_.empty() && !write_record(gather_.data(), gather_.size())) return false;
      room -= std::min(room, kRecordBytes);
    }
    if (!vectors.empty() && skip == vectors.front().iov_len) {
      vectors = vectors.subspan(1);
      skip = 0;
    }
  }
  return true;
}

ssize_t TlsStream::send(std::span<const iovec> vectors) {
  if (broken_ != 0) return refuse();
  if (kernel_sends_) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(vectors.data());
    message.msg_iovlen = vectors.size();
    return ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (encrypted_ == 0 && !encrypt(vectors)) return explain(-1);
  if (!flush()) return refuse();
  return static_cast<ssize_t>(std::exchange(encrypted_, 0));
}

ssize_t TlsStream::recv(void* to, size_t bytes, bool& drained) {
  drained = false;
  if (broken_ != 0) return refuse();
  size_t got = 0;
  while (got < bytes) {
    size_t part = 0;
    ERR_clear_error();
    const int result = SSL_read_ex(ssl_.get(), static_cast<uint8_t*>(to) + got, bytes - got, &part);
    if (result == 1) {
      got += part;
      continue;
    }
    if (SSL_get_error(ssl_.get(), result) == SSL_ERROR_ZERO_RETURN) return static_cast<ssize_t>(got);
    const int failed = explain(result);
    drained = got > 0 && broken_ == 0;
    return got > 0 ? static_cast<ssize_t>(got) : failed;
  }
  return static_cast<ssize_t>(got);
}

}  // namespace tutti::net_socket
