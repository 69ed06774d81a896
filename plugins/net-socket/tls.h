// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 for the streams of connections, by OpenSSL, and by the kernel where it can. There are no certificates: both
// ends of a stream have a pre-shared key, which they derive from the secret of the listener and from the nonces of the
// handshake (wire.h). Each stream also has a key exchange of its own, so that a secret that leaks later opens no
// recorded stream.
#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "system.h"
#include "tutti/sdk/handshake.h"
#include "wire.h"

namespace tutti::net_socket {

/// Settings and OpenSSL context that all streams of a context share. Functions are for any thread.
class Tls {
 public:
  struct Options {
    bool kernel = true;                            ///< use the kernel's TLS where there is one
    uint64_t records_per_key = uint64_t{1} << 23;  ///< of data; AES-GCM is safe for 2^24.5 full records
    Milliseconds patience{20'000};                 ///< for the rest of a handshake's part that has begun to arrive
    std::function<void(const std::string&)> log;   ///< a line at info
  };
  /// kUnsupported if this OpenSSL, or its configuration, does not offer TLS 1.3 with AES-128-GCM.
  static Result<std::shared_ptr<const Tls>> create(Options options);

  SSL_CTX* context() const { return context_.get(); }
  BIO_METHOD* method() const { return method_.get(); }
  const Options& options() const { return options_; }
  /// Logs `text` once for each direction: whether the kernel encrypts or decrypts.
  void tell(bool sends, const std::string& text) const;

 private:
  template <auto release>
  struct Free {
    void operator()(auto* object) const { release(object); }
  };
  explicit Tls(Options options) : options_(std::move(options)) {}

  Options options_;
  std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>> context_;
  std::unique_ptr<BIO_METHOD, Free<BIO_meth_free>> method_;
  mutable std::array<std::atomic<bool>, 2> told_{};  // by direction; only this class reads and writes it
};

/// One end of a stream with TLS. Data go from the connecting side, which is TLS's client, to the listener. Nothing
/// blocks. One thread at a time.
///
/// Functions return as those of sockets do: -1 with errno. EAGAIN: not now. EBADMSG: bytes that fit no rule of TLS or
/// do not pass its check, see failure(). ENODATA: the stream ended without the end that TLS demands. After EBADMSG and
/// ENODATA the stream is of no use any more.
class TlsStream {
 public:
  enum class Role { kSends, kReceives };
  /// `socket` is connected, does not block, and outlives the stream. kInternal if OpenSSL has no memory.
  static Result<std::unique_ptr<TlsStream>> create(std::shared_ptr<const Tls> tls, int socket, Role role,
                                                   const StreamKey& key);
  /// Tells the other side that the stream ends here, if the socket takes the message now.
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  bool ready() const { return ready_; }
  /// Goes on with TLS's handshake. 0: the stream is ready.
  int shake_hands();
  /// Sends from the front of the vectors; how much the kernel has now. After EAGAIN, the next call begins with the same
  /// bytes: they may be encrypted already.
  ssize_t send(std::span<const iovec> vectors);
  /// Up to `bytes` bytes; 0: the other side has ended the stream. `drained`: there is nothing more now.
  ssize_t recv(void* to, size_t bytes, bool& drained);
  /// TLS's complaint, after EBADMSG: "decryption failed or bad record mac".
  const std::string& failure() const { return failure_; }
  /// Whether the kernel encrypts or decrypts.
  bool uses_kernel() const { return kernel_sends_ || kernel_receives_; }

 private:
  friend struct TlsBio;
  TlsStream(std::shared_ptr<const Tls> tls, int socket, Role role, const StreamKey& key)
      : tls_(std::move(tls)), socket_(socket), role_(role), key_(key) {}
  Status open();
  bool attach_kernel();
  void become_ready();
  std::string who_works() const;
  bool encrypt(std::span<const iovec> vectors);
  bool write_record(const void* from, size_t bytes);
  bool renew_key();
  bool flush();
  int check_patience(int result);
  int refuse();
  int explain(int result);
  SSL_SESSION* make_session() const;
  static int client_session(SSL* ssl, const EVP_MD* digest, const unsigned char** identity, size_t* identity_bytes,
                            SSL_SESSION** session);
  static int server_session(SSL* ssl, const unsigned char* identity, size_t identity_bytes, SSL_SESSION** session);
  friend class Tls;

  const std::shared_ptr<const Tls> tls_;
  const int socket_;
  const Role role_;
  const StreamKey key_;
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  std::unique_ptr<SSL, Free> ssl_;
  BIO* kernel_bio_ = nullptr;  // owned by ssl_'s BIO; null: without the kernel's TLS
  int kernel_error_ = 0;       // why the kernel has no TLS
  bool kernel_sends_ = false;
  bool kernel_receives_ = false;
  bool ready_ = false;
  bool eof_ = false;
  int socket_error_ = 0;
  std::optional<Time> hears_since_;  // a part of the handshake, which this side has not answered yet
  int broken_ = 0;                   // errno of all later calls
  std::string failure_;
  uint64_t records_ = 0;      // of the present key
  std::vector<uint8_t> out_;  // encrypted, for the socket
  size_t out_begin_ = 0;
  size_t encrypted_ = 0;         // bytes of data in out_
  std::vector<uint8_t> gather_;  // small pieces of data for one record
};

}  // namespace tutti::net_socket
