// SPDX-License-Identifier: Apache-2.0
// A network outside Tutti's tree: each connection is a Unix stream socket between two processes of one machine. It is
// small, and keeps the whole contract of tutti/plugin/network.h. Replace the calls of sockets by the calls of a device.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <utility>
#include <vector>

#include "tutti/sdk/network.h"

namespace {

using namespace tutti;

constexpr uint64_t kMagic = 0x7475747469000001;  // the first bytes of a connection, and of each message
constexpr uint64_t kPieceBytes = 64 << 10;       // copied by one system call: [progress] entries must be short
constexpr int kPieces = 16;                      // of one call of test

/// A file descriptor with an owner.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

Socket make_socket() {
  return Socket(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

Status system_failure(const std::string& what) {
  return {Code::kSystem, what + ": " + std::strerror(errno)};
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

/// The beginning of each message.
struct Header {
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  uint64_t tag = 0;
};

/// A send or a receive that `test` has not yet reported.
struct Message : sdk::Request {
  Header header;
  uint8_t* data = nullptr;
  uint64_t room = 0;      ///< bytes of the buffer of a receive
  uint64_t moved = 0;     ///< bytes of header and data that have left, or bytes of data that have come
  bool is_begun = false;  ///< a receive whose message arrives
  bool is_done = false;
  std::list<Message>::iterator place;  ///< in the list of its connection
};

/// One direction: one end only sends, the other end only receives.
class Stream : public sdk::Connection {
 public:
  Stream(Socket socket, const std::string& path) : socket_(std::move(socket)) {
    ucred peer{};
    socklen_t size = sizeof peer;
    getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
    broken_ = "the connection over " + path + " between process " + std::to_string(getpid()) + " and process " +
              std::to_string(peer.pid) + " is broken";
  }

  Status send(const void* address, uint64_t bytes, uint32_t tag, void* /*registration*/, sdk::Request*& out) override {
    if (is_broken_) return {Code::kRemote, broken_};
    Message& message = post();
    message.header.bytes = bytes;
    message.header.tag = tag;
    message.data = static_cast<uint8_t*>(const_cast<void*>(address));
    out = &message;
    push();
    return {};
  }

  Status recv(uint32_t /*count*/, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* /*registrations*/, sdk::Request*& out) override {
    if (is_broken_) return {Code::kRemote, broken_};
    is_receiver_ = true;
    Message& message = post();
    message.data = static_cast<uint8_t*>(addresses[0]);
    message.room = bytes[0];
    message.header.tag = tags[0];
    out = &message;
    return {};
  }

  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override {
    auto& message = static_cast<Message&>(request);
    if (!message.is_done && !is_broken_) is_receiver_ ? pull() : push();
    if (message.is_done) {
      done = true;
      if (bytes != nullptr && is_receiver_) *bytes = message.header.bytes;
      all_.erase(message.place);
      return {};
    }
    if (message.is_begun && message.header.bytes > message.room) {
      return {Code::kMismatch, "a message of " + std::to_string(message.header.bytes) +
                                   " bytes is longer than its buffer of " + std::to_string(message.room)};
    }
    return is_broken_ ? Status(Code::kRemote, broken_) : Status();
  }

 private:
  Message& post() {
    Message& message = all_.emplace_back();
    message.connection = this;
    message.place = std::prev(all_.end());
    waiting_.push_back(&message);
    return message;
  }

  /// Sends as much as the socket takes.
  void push() {
    for (int pieces = 0; pieces < kPieces && !waiting_.empty(); ++pieces) {
      Message& message = *waiting_.front();
      const bool in_header = message.moved < sizeof(Header);
      const uint64_t at = in_header ? message.moved : message.moved - sizeof(Header);
      const uint8_t* const from = (in_header ? reinterpret_cast<const uint8_t*>(&message.header) : message.data) + at;
      const uint64_t left = (in_header ? sizeof(Header) : message.header.bytes) - at;
      if (left > 0) {
        const ssize_t sent = ::send(socket_.get(), from, std::min(left, kPieceBytes), MSG_NOSIGNAL);
        if (sent < 0) return note_failure();
        message.moved += static_cast<uint64_t>(sent);
      }
      if (message.moved < sizeof(Header) + message.header.bytes) continue;
      message.is_done = true;
      waiting_.pop_front();
    }
  }

  /// Receives as much as has come, as long as a receive waits for it.
  void pull() {
    for (int pieces = 0; pieces < kPieces && !waiting_.empty() && !is_broken_; ++pieces) {
      if (header_bytes_ < sizeof(Header)) {
        header_bytes_ += read(reinterpret_cast<uint8_t*>(&header_) + header_bytes_, sizeof(Header) - header_bytes_);
        if (header_bytes_ < sizeof(Header)) return;
        if (header_.magic != kMagic) is_broken_ = true;
      }
      if (into_ == nullptr) begin_message();
      if (into_ == nullptr || header_.bytes > into_->room) return;
      into_->moved += read(into_->data + into_->moved, std::min(header_.bytes - into_->moved, kPieceBytes));
      if (into_->moved == header_.bytes) end_message();
    }
  }

  /// Finds the oldest receive with the tag of the message.
  void begin_message() {
    const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Message* one) { return one->header.tag == header_.tag; });
    if (found == waiting_.end()) return;  // the message waits in the socket
    into_ = *found;
    into_->is_begun = true;
    into_->header.bytes = header_.bytes;
  }

  void end_message() {
    into_->is_done = true;
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), std::exchange(into_, nullptr)));
    header_bytes_ = 0;
  }

  uint64_t read(uint8_t* to, uint64_t bytes) {
    if (bytes == 0) return 0;
    const ssize_t got = ::recv(socket_.get(), to, bytes, 0);
    if (got > 0) return static_cast<uint64_t>(got);
    got == 0 ? void(is_broken_ = true) : note_failure();
    return 0;
  }

  void note_failure() {
    if (errno != EAGAIN && errno != EINTR) is_broken_ = true;
  }

  Socket socket_;
  std::string broken_;
  std::list<Message> all_;
  std::deque<Message*> waiting_;  ///< not complete, oldest first
  Header header_;                 ///< header of the message that arrives
  uint64_t header_bytes_ = 0;
  Message* into_ = nullptr;
  bool is_receiver_ = false;
  bool is_broken_ = false;
};

class Caller : public sdk::Connecting {
 public:
  Caller(Socket socket, std::string path) : socket_(std::move(socket)), path_(std::move(path)) {}

  Result<std::unique_ptr<sdk::Connection>> advance() override {
    const sockaddr_un address = address_of(path_);
    if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      if (errno == EAGAIN || errno == EINTR) return std::unique_ptr<sdk::Connection>();  // the listener is busy
      return Status(Code::kRemote, "process " + std::to_string(getpid()) + " cannot connect to " + path_ + ": " +
                                       std::strerror(errno));
    }
    if (::send(socket_.get(), &kMagic, sizeof kMagic, MSG_NOSIGNAL) != sizeof kMagic) {
      return Status(Code::kRemote, "process " + std::to_string(getpid()) + " lost its connection to " + path_);
    }
    return std::unique_ptr<sdk::Connection>(std::make_unique<Stream>(std::move(socket_), path_));
  }

 private:
  Socket socket_;
  std::string path_;
};

class Acceptor : public sdk::Listener {
 public:
  Acceptor(Socket socket, std::string path) : socket_(std::move(socket)), path_(std::move(path)) {}
  ~Acceptor() override { unlink(path_.c_str()); }

  /// A guest becomes a connection when it has sent the magic number. Other guests are strangers.
  Result<std::unique_ptr<sdk::Connection>> accept() override {
    for (int fd = 0; (fd = accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
      guests_.emplace_back(fd);
    }
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      uint64_t magic = 0;
      const ssize_t seen = ::recv(guest->get(), &magic, sizeof magic, MSG_PEEK);
      const bool is_quiet = seen < 0 && (errno == EAGAIN || errno == EINTR);
      if (is_quiet || (seen > 0 && seen < ssize_t{sizeof magic})) {
        ++guest;
        continue;
      }
      Socket socket = std::move(*guest);
      guest = guests_.erase(guest);
      if (seen < 0 || magic != kMagic || ::recv(socket.get(), &magic, sizeof magic, 0) != sizeof magic) continue;
      return std::unique_ptr<sdk::Connection>(std::make_unique<Stream>(std::move(socket), path_));
    }
    return std::unique_ptr<sdk::Connection>();
  }

 private:
  Socket socket_;
  std::string path_;
  std::list<Socket> guests_;
};

class Context : public sdk::NetworkContext {
 public:
  uint32_t device_count() const override { return 1; }

  Result<tutti_net_properties> properties(uint32_t device) const override {
    if (device != 0) return Status(Code::kInvalidArgument, "there is no device " + std::to_string(device));
    tutti_net_properties out{};
    out.name = sdk::borrow("local0");
    out.memory = TUTTI_MEMORY_HOST;
    out.max_grouped_recvs = 1;
    out.max_message_bytes = uint64_t{1} << 32;
    out.rail = -1;
    return out;
  }

  Result<std::unique_ptr<sdk::Listener>> listen(uint32_t /*device*/, tutti_net_handle& handle) override {
    static std::atomic<uint32_t> next{0};  // any order: only differs
    const std::string path = "/tmp/tutti-unix_stream-" + std::to_string(getpid()) + "-" + std::to_string(next++);
    const sockaddr_un address = address_of(path);
    Socket socket = make_socket();
    unlink(path.c_str());  // of an earlier process with this number
    if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
      return system_failure("cannot listen at " + path);
    }
    handle = {};
    std::memcpy(handle.bytes, path.c_str(), path.size() + 1);
    return std::unique_ptr<sdk::Listener>(std::make_unique<Acceptor>(std::move(socket), path));
  }

  Result<std::unique_ptr<sdk::Connecting>> connect(uint32_t /*device*/, const tutti_net_handle& handle) override {
    Socket socket = make_socket();
    if (socket.get() < 0) return system_failure("cannot make a socket");
    const auto* const text = reinterpret_cast<const char*>(handle.bytes);
    std::string path(text, strnlen(text, sizeof handle.bytes));
    return std::unique_ptr<sdk::Connecting>(std::make_unique<Caller>(std::move(socket), std::move(path)));
  }
};

class UnixStreamNetwork : public sdk::Network {
 public:
  Result<std::unique_ptr<sdk::NetworkContext>> create(uint64_t /*communicator*/) override {
    return std::unique_ptr<sdk::NetworkContext>(std::make_unique<Context>());
  }
};

}  // namespace

TUTTI_PLUGIN(UnixStreamNetwork, "unix_stream", "1.0.0", "Unix sockets between processes of one machine")
