// SPDX-License-Identifier: Apache-2.0
#include "base/fd_post.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

namespace tutti::base {
namespace {

constexpr uint32_t kFilesAtOnce = 64;        // the kernel takes 253
constexpr uint32_t kGivesUp = ~uint32_t{0};  // in place of a number of files
constexpr Milliseconds kSlice{100};          // length of each poll
constexpr Milliseconds kCrowdedSlice{5};     // while too many files are on their way

/// The data of a datagram, before its files.
struct Letter {
  uint64_t secret = 0;  // secret of the receiver
  uint32_t sender = 0;
  uint32_t total = 0;  // files that the sender gives
  uint32_t first = 0;  // index of the first file in this letter
  uint32_t count = 0;
  std::array<uint64_t, kFilesAtOnce> notes = {};
};

/// A name that no file has ("abstract").
struct Name {
  explicit Name(uint64_t number) {
    address.sun_family = AF_UNIX;
    const std::string text = fmt::format("tutti-{:016x}", number);
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t bytes = 0;
};

Result<Fd> make_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return system_error("socket(AF_UNIX)");
  return fd;
}

/// The control data of a letter.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesAtOnce * sizeof(int))> bytes = {};
};

/// The way of one member to a peer: the items that are still to be sent.
class Outgoing {
 public:
  static Result<Outgoing> open(const FdPost::Address& to) {
    TUTTI_ASSIGN(Fd socket, make_socket());
    const Name name(to.name);
    if (::connect(socket.get(), name.data(), name.bytes) != 0) {
      return Status(Code::kRemote, "the process is gone, or in another network namespace: " + errno_text(errno));
    }
    return Outgoing(std::move(socket), to.secret);
  }
  int fd() const { return socket_.get(); }
  bool is_done(size_t items) const { return sent_any_ && next_ == items; }

  /// Whether the kernel takes no more of this user's files for now, wherever to.
  bool is_crowded() const { return is_crowded_; }

  /// Says that no more comes, if that can be said now.
  void give_up(uint32_t sender) const {
    const Letter letter{secret_, sender, kGivesUp, 0, 0, {}};
    static_cast<void>(::send(socket_.get(), &letter, sizeof letter, MSG_NOSIGNAL));
  }

  /// As much as is taken now.
  Status send(uint32_t sender, std::span<const FdPost::Item> items) {
    is_crowded_ = false;
    while (!is_done(items.size())) {
      Letter letter{secret_, sender, static_cast<uint32_t>(items.size()), static_cast<uint32_t>(next_), 0, {}};
      Control control;
      std::array<int, kFilesAtOnce> files;
      for (; letter.count < kFilesAtOnce && next_ + letter.count < items.size(); ++letter.count) {
        files[letter.count] = items[next_ + letter.count].fd;
        letter.notes[letter.count] = items[next_ + letter.count].note;
      }
      iovec data{&letter, sizeof letter};
      msghdr message{};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      if (letter.count > 0) {
        message.msg_control = control.bytes.data();
        message.msg_controllen = CMSG_SPACE(letter.count * sizeof(int));
        cmsghdr* const header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(letter.count * sizeof(int));
        std::memcpy(CMSG_DATA(header), files.data(), letter.count * sizeof(int));
      }
      if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) {
        is_crowded_ = errno == ETOOMANYREFS;
        if (errno == EAGAIN || errno == ETOOMANYREFS || errno == EINTR) return {};
        return Status(Code::kRemote, "its process took no files: " + errno_text(errno));
      }
      next_ += letter.count;
      sent_any_ = true;
    }
    return {};
  }

 private:
  Outgoing(Fd socket, uint64_t secret) : socket_(std::move(socket)), secret_(secret) {}

  Fd socket_;
  uint64_t secret_;
  size_t next_ = 0;
  bool sent_any_ = false;  // a member that gives nothing says so
  bool is_crowded_ = false;
};

/// The files and notes that one member has given so far.
struct Incoming {
  FdPost::Parcel parcel;
  std::optional<size_t> total;
  bool is_done() const { return total && parcel.files.size() == *total; }
};

/// The contents of one datagram.
struct Delivery {
  Letter letter;
  std::vector<Fd> files;
};

/// The next letter; nothing: there is none now, or it is not for us.
Result<std::optional<Delivery>> receive(int socket, uint64_t secret) {
  Delivery delivery;
  Control control;
  iovec data{&delivery.letter, sizeof delivery.letter};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t bytes = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (bytes < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<Delivery>();
    return system_error("recvmsg");
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      delivery.files.emplace_back(fd);
    }
  }
  const Letter& letter = delivery.letter;
  if (bytes != sizeof letter || letter.secret != secret || letter.count > kFilesAtOnce) {
    return std::optional<Delivery>();
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0 || delivery.files.size() != letter.count) {
    return Status(Code::kSystem, "files of another process did not arrive: too many are open here (ulimit -n)");
  }
  return std::optional<Delivery>(std::move(delivery));
}

/// One exchange, from one member's side.
class Exchange {
 public:
  Exchange(int socket, uint64_t secret, uint32_t self, size_t members)
      : socket_(socket), secret_(secret), self_(self), incoming_(members) {
    incoming_[self].total = 0;
  }

  Status run(std::span<const FdPost::Address> members, std::span<const FdPost::Item> items, Time deadline,
             const std::function<Status()>& is_over) {
    for (uint32_t member = 0; member < members.size(); ++member) {
      if (member == self_) continue;
      auto way = Outgoing::open(members[member]);
      if (!way.ok()) return way.status().with_context(fmt::format("files for rank {}", member));
      outgoing_.emplace_back(member, *std::move(way));
    }
    for (;;) {
      TUTTI_ASSIGN(std::vector<pollfd> waits, send(items));
      TUTTI_TRY(receive_all());
      const auto missing =
          std::find_if(incoming_.begin(), incoming_.end(), [](const Incoming& from) { return !from.is_done(); });
      if (missing == incoming_.end() && sent_all_) return {};
      const Milliseconds left = left_until(deadline, is_crowded_ ? kCrowdedSlice : kSlice);
      if (left.count() == 0 && missing == incoming_.end()) {
        return {Code::kTimeout, "another rank does not take files"};
      }
      if (left.count() == 0) {
        return {Code::kTimeout, fmt::format("rank {} gave no files in time", missing - incoming_.begin())};
      }
      TUTTI_TRY(is_over());
      if (::poll(waits.data(), waits.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) {
        return system_error("poll");
      }
    }
  }
  /// Tells the members that this member gives up, so that they need not wait for its files.
  void give_up() const {
    for (const auto& [member, way] : outgoing_) way.give_up(self_);
  }
  std::vector<FdPost::Parcel> take() {
    std::vector<FdPost::Parcel> parcels;
    parcels.reserve(incoming_.size());
    for (Incoming& from : incoming_) parcels.push_back(std::move(from.parcel));
    return parcels;
  }

 private:
  /// Returns the descriptors to poll.
  Result<std::vector<pollfd>> send(std::span<const FdPost::Item> items) {
    std::vector<pollfd> waits = {{socket_, POLLIN, 0}};
    sent_all_ = true;
    is_crowded_ = false;
    for (auto& [member, way] : outgoing_) {
      const Status sent = way.send(self_, items);
      if (!sent.ok()) return sent.with_context(fmt::format("rank {}", member));
      if (way.is_done(items.size())) continue;
      sent_all_ = false;
      is_crowded_ = is_crowded_ || way.is_crowded();
      if (!way.is_crowded()) waits.push_back({way.fd(), POLLOUT, 0});
    }
    return waits;
  }

  /// All letters that are there.
  Status receive_all() {
    pollfd next{socket_, POLLIN, 0};
    while (::poll(&next, 1, 0) > 0) {
      TUTTI_ASSIGN(std::optional<Delivery> delivery, receive(socket_, secret_));
      if (delivery) TUTTI_TRY(keep(*delivery));
    }
    return {};
  }

  Status keep(Delivery& delivery) {
    const Letter& letter = delivery.letter;
    if (letter.sender >= incoming_.size() || letter.sender == self_) return {};
    if (letter.total == kGivesUp) {
      return {Code::kRemote, fmt::format("rank {} could not give or take files", letter.sender)};
    }
    Incoming& from = incoming_[letter.sender];
    if (letter.first != from.parcel.files.size() || from.is_done()) return {};  // no letter of that member's
    from.total = letter.total;
    for (uint32_t i = 0; i < letter.count; ++i) {
      from.parcel.files.push_back(std::move(delivery.files[i]));
      from.parcel.notes.push_back(letter.notes[i]);
    }
    return {};
  }

  int socket_;
  uint64_t secret_;
  uint32_t self_;
  std::vector<Incoming> incoming_;                       // by member
  std::vector<std::pair<uint32_t, Outgoing>> outgoing_;  // with its member
  bool sent_all_ = false;
  bool is_crowded_ = false;
};

}  // namespace

Result<FdPost> FdPost::open() {
  Address address;
  if (getrandom(&address, sizeof address, 0) != sizeof address) {
    return Status(Code::kSystem, "getrandom failed; check the system's random source");
  }
  TUTTI_ASSIGN(Fd socket, make_socket());
  const Name name(address.name);
  if (::bind(socket.get(), name.data(), name.bytes) != 0) return system_error("bind of a Unix socket");
  return FdPost(std::move(socket), address);
}

Result<std::vector<FdPost::Parcel>> FdPost::exchange(std::span<const Address> members, uint32_t self,
                                                     std::span<const Item> items, Time deadline,
                                                     const std::function<Status()>& is_over) {
  Exchange exchange(socket_.get(), address_.secret, self, members.size());
  const Status done = exchange.run(members, items, deadline, is_over);
  if (done.ok()) return exchange.take();
  exchange.give_up();
  return done;
}

}  // namespace tutti::base
