// SPDX-License-Identifier: Apache-2.0
// The data path of the mock NCCL plugins: messages over TCP sockets of the loopback interface, with the habits of
// NCCL's plugins. Few requests are outstanding, a post may be refused, and a connection breaks for good.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

namespace {

enum Code : int { kOk = 0, kSystemError = 2, kInternalError = 3, kRemoteError = 6 };

constexpr uint64_t kMagic = 0x6d6f636b6e63636c;  // the first bytes of a connection, and of each message
constexpr uint64_t kPiece = 64 << 10;
constexpr int kPieces = 2;  // in one call: more may take longer than rule NET-35 allows
constexpr size_t kMostRequests = 8;
constexpr int kRefuseEvery = 3;  // posts

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
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct Header {
  uint64_t magic = kMagic;
  uint64_t bytes = 0;
  int64_t tag = 0;
};

struct Part {
  uint8_t* data = nullptr;
  uint64_t room = 0;
  int tag = 0;
  bool is_begun = false;
  bool is_done = false;
  uint64_t bytes = 0;  // of the message
};

struct Comm;
struct Request {
  Comm* comm = nullptr;
  std::vector<Part> parts;
  Header header;
  uint64_t moved = 0;
  bool is_too_long = false;

  bool is_done() const {
    return std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.is_done; });
  }
};

/// `ignores_tags`: messages come in the order posted, and tags are not compared.
struct Comm {
  Comm(Socket the_socket, bool does_send, bool does_ignore_tags)
      : socket(std::move(the_socket)), sends(does_send), ignores_tags(does_ignore_tags) {}

  /// Null: not now.
  Request* post() {
    if (requests.size() >= kMostRequests || ++posts % kRefuseEvery == 0) return nullptr;
    Request& request = requests.emplace_back();
    request.comm = this;
    return &request;
  }

  void push() {
    for (int pieces = 0; pieces < kPieces && !is_broken; ++pieces) {
      const auto next = std::find_if(requests.begin(), requests.end(), [](const auto& one) { return !one.is_done(); });
      if (next == requests.end()) return;
      Request& request = *next;
      const bool in_header = request.moved < sizeof(Header);
      const uint64_t at = in_header ? request.moved : request.moved - sizeof(Header);
      const auto* const from =
          (in_header ? reinterpret_cast<const uint8_t*>(&request.header) : request.parts[0].data) + at;
      const uint64_t left = (in_header ? sizeof(Header) : request.header.bytes) - at;
      if (left > 0) {
        const ssize_t sent = ::send(socket.get(), from, std::min(left, kPiece), MSG_NOSIGNAL);
        if (sent < 0) return note_failure();
        request.moved += static_cast<uint64_t>(sent);
      }
      request.parts[0].is_done = request.moved == sizeof(Header) + request.header.bytes;
    }
  }

  void pull() {
    for (int pieces = 0; pieces < kPieces && !is_broken; ++pieces) {
      if (header_bytes < sizeof(Header)) {
        header_bytes += read(reinterpret_cast<uint8_t*>(&header) + header_bytes, sizeof(Header) - header_bytes);
        if (header_bytes < sizeof(Header)) return;
      }
      if (into == nullptr && !begin_message()) return;
      into->bytes += read(into->data + into->bytes, std::min(header.bytes - into->bytes, kPiece));
      if (into->bytes < header.bytes) continue;
      std::exchange(into, nullptr)->is_done = true;
      header_bytes = 0;
    }
  }

  Socket socket;
  const bool sends;
  const bool ignores_tags;
  std::list<Request> requests;  // oldest first
  bool is_broken = false;

 private:
  bool begin_message() {
    for (Request& request : requests) {
      for (Part& part : request.parts) {
        if (part.is_begun || (!ignores_tags && part.tag != header.tag)) continue;
        part.is_begun = true;
        request.is_too_long = is_broken = header.bytes > part.room;
        into = &part;
        return !is_broken;
      }
    }
    return false;  // the message waits in the socket
  }
  uint64_t read(uint8_t* to, uint64_t bytes) {
    if (bytes == 0) return 0;
    const ssize_t got = ::recv(socket.get(), to, bytes, 0);
    if (got > 0) return static_cast<uint64_t>(got);
    got == 0 ? void(is_broken = true) : note_failure();
    return 0;
  }
  void note_failure() {
    if (errno != EAGAIN && errno != EINTR) is_broken = true;
  }

  Header header;  // of the message that comes
  uint64_t header_bytes = 0;
  Part* into = nullptr;
  int posts = 0;
};

Socket make_socket() {
  return Socket(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace
