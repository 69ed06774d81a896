// SPDX-License-Identifier: Apache-2.0
#include "rail.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

namespace tutti::net_socket {
namespace {

constexpr size_t kMaxVectors = 16;
constexpr uint64_t kMaxMessage = uint64_t{1} << 40;

iovec vector_of(const void* data, size_t bytes) {
  return {const_cast<void*>(data), bytes};
}

}  // namespace

Rail::Rail(uint32_t index, DataSocket socket, bool sends, const Shared& shared)
    : index_(index), sends_(sends), socket_(std::move(socket)), shared_(shared) {
  const SocketAddress here = local_address(socket_.fd()), there = remote_address(socket_.fd());
  here_ = here.to_string();
  there_ = there.to_string();
  here_ip_ = here.ip_text();
  there_ip_ = there.ip_text();
  for (const Interface& one : shared.interfaces) {
    if (one.address.ip_text() == here_ip_) interface_ = one.name;
  }
  socket_.use_both_ways();
  post(name_frame());
}

Frame Rail::name_frame() const {
  std::array<char, 16> name{};
  std::copy_n(interface_.begin(), std::min(interface_.size(), name.size()), name.begin());
  Frame frame;
  frame.kind = Frame::kName;
  std::memcpy(&frame.number, name.data(), 8);
  std::memcpy(&frame.bytes, name.data() + 8, 8);
  return frame;
}

std::string Rail::ends() const {
  const auto named = [](const std::string& address, std::string_view interface) {
    return interface.empty() ? address : fmt::format("{} ({})", address, interface);
  };
  const std::string here = named(here_, interface_);
  const std::string there =
      named(there_, std::string_view(peer_interface_.data(), ::strnlen(peer_interface_.data(), 16)));
  return fmt::format("{} to {}", sends_ ? here : there, sends_ ? there : here);
}

std::string Rail::path() const {
  return here_ip_ + " to " + there_ip_;
}

void Rail::post(Parcel parcel) {
  if (parcel.frame.kind == Frame::kData) bytes_under_way_ += parcel.frame.bytes;
  parcels_.push_back(std::move(parcel));
}

bool Rail::keep(uint32_t request) {
  const auto written_end = parcels_.begin() + static_cast<ptrdiff_t>(next_);
  const auto found =
      std::find_if(parcels_.begin(), written_end, [&](const Parcel& parcel) { return parcel.request == request; });
  int queued = 0;
  if (found == written_end || ::ioctl(socket_.fd().get(), SIOCOUTQ, &queued) != 0) return false;
  if (found->end + static_cast<uint64_t>(queued) > stream_bytes_) return false;
  found->kept = std::make_unique<uint8_t[]>(found->frame.bytes);
  std::copy_n(found->payload, found->frame.bytes, found->kept.get());
  found->payload = found->kept.get();
  found->request = Parcel::kNoRequest;
  return true;
}

/// Takes the first frame of data, which is written. Its request.
uint32_t Rail::take_acknowledged() {
  const Parcel& parcel = parcels_.front();
  const uint32_t request = parcel.request;
  bytes_under_way_ -= parcel.frame.bytes;
  parcels_.pop_front();
  --next_;
  ++acknowledged_;
  drop_written_controls();
  return request;
}

std::vector<Parcel> Rail::take_unacknowledged() {
  std::vector<Parcel> out;
  for (Parcel& parcel : parcels_) {
    if (parcel.frame.kind == Frame::kData) out.push_back(std::move(parcel));
  }
  parcels_.clear();
  next_ = written_ = 0;
  bytes_under_way_ = 0;
  return out;
}

Status Rail::advance(User& user, uint64_t& moves) {
  TUTTI_TRY(read(user, moves));
  if (state_ != State::kLive) return {};
  const Status written = write(moves);
  if (written.ok()) return {};
  // The peer may have sent its last messages, or its farewell, after the first read.
  (void)read(user, moves);
  return state_ == State::kLive ? written : Status();
}

Status Rail::write(uint64_t& moves) {
  while (next_ < parcels_.size()) {
    std::array<iovec, kMaxVectors> vectors{};
    size_t count = 0, skip = written_;
    for (size_t i = next_; i < parcels_.size() && count + 1 < kMaxVectors; ++i) {
      const Parcel& parcel = parcels_[i];
      if (skip < sizeof(Frame)) {
        vectors[count++] = vector_of(reinterpret_cast<const uint8_t*>(&parcel.frame) + skip, sizeof(Frame) - skip);
        skip = sizeof(Frame);
      }
      const uint64_t payload = parcel.frame.kind == Frame::kData ? parcel.frame.bytes : 0;
      const uint64_t begin = skip - sizeof(Frame);
      if (payload > begin) vectors[count++] = vector_of(parcel.payload + begin, payload - begin);
      skip = 0;
    }
    const ssize_t sent = socket_.send(std::span(vectors).first(count));
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
      if (errno == EINTR) continue;
      return broken(errno);
    }
    ++moves;
    set_written(static_cast<size_t>(sent));
  }
  return {};
}

void Rail::set_written(size_t bytes) {
  written_ += bytes;
  stream_bytes_ += bytes;
  while (next_ < parcels_.size()) {
    const Frame& frame = parcels_[next_].frame;
    const uint64_t whole = sizeof(Frame) + (frame.kind == Frame::kData ? frame.bytes : 0);
    if (written_ < whole) break;
    written_ -= whole;
    parcels_[next_].end = stream_bytes_ - written_;
    ++next_;
  }
  drop_written_controls();
}

void Rail::drop_written_controls() {
  while (next_ > 0 && parcels_.front().frame.kind != Frame::kData) {
    parcels_.pop_front();
    --next_;
  }
}

Status Rail::read(User& user, uint64_t& moves) {
  drained_ = false;
  while (state_ == State::kLive) {
    const size_t ready = ahead_end_ - ahead_begin_;
    if (payload_left_ > 0) {
      size_t part = std::min<uint64_t>(ready, payload_left_);
      if (part > 0) {
        if (payload_to_ != nullptr) std::memcpy(payload_to_, ahead_.get() + ahead_begin_, part);
        ahead_begin_ += part;
      } else {
        uint8_t* const to = payload_to_ != nullptr ? payload_to_ : ahead_.get();
        const uint64_t room = payload_to_ != nullptr ? payload_left_ : std::min<uint64_t>(payload_left_, kReadAhead);
        TUTTI_ASSIGN(part, read_some(to, room, moves));
        if (part == 0) return {};
      }
      if (payload_to_ != nullptr) payload_to_ += part;
      payload_left_ -= part;
      if (payload_left_ == 0) TUTTI_TRY(finish_payload(user));
      continue;
    }
    if (ready >= sizeof(Frame)) {
      TUTTI_TRY(take_frame(user));
      continue;
    }
    std::memmove(ahead_.get(), ahead_.get() + ahead_begin_, ready);
    ahead_begin_ = 0;
    ahead_end_ = ready;
    TUTTI_ASSIGN(const size_t got, read_some(ahead_.get() + ahead_end_, kReadAhead - ahead_end_, moves));
    if (got == 0) return {};
    ahead_end_ += got;
  }
  return {};
}

/// Up to `bytes` bytes that are there now; 0: none.
Result<size_t> Rail::read_some(uint8_t* to, size_t bytes, uint64_t& moves) {
  if (std::exchange(drained_, false)) return size_t{0};
  for (;;) {
    const ssize_t got = socket_.recv(to, bytes, drained_);
    if (got > 0) {
      ++moves;
      return static_cast<size_t>(got);
    }
    if (got == 0) return broken(0);
    if (errno == EAGAIN || errno == EWOULDBLOCK) return size_t{0};
    if (errno != EINTR) return broken(errno);
  }
}

Status Rail::take_frame(User& user) {
  std::memcpy(&frame_, ahead_.get() + ahead_begin_, sizeof(Frame));
  ahead_begin_ += sizeof(Frame);
  if (frame_.kind == Frame::kName) {
    std::memcpy(peer_interface_.data(), &frame_.number, 8);
    std::memcpy(peer_interface_.data() + 8, &frame_.bytes, 8);
    return {};
  }
  const bool known = frame_.kind <= Frame::kFarewell && frame_.bytes <= kMaxMessage;
  if (!known) return {Code::kMismatch, fmt::format("{}: received a damaged frame", ends())};
  payload_to_ = nullptr;
  TUTTI_TRY(user.take(*this, frame_));
  if (frame_.kind != Frame::kData) return {};
  payload_left_ = frame_.bytes;
  return payload_left_ == 0 ? finish_payload(user) : Status();
}

Status Rail::finish_payload(User& user) {
  const Frame whole = frame_;
  frame_.kind = Frame::kName;
  return user.arrived(*this, whole);
}

bool Rail::is_receiving(const Frame& part) const {
  return frame_.kind == Frame::kData && payload_left_ > 0 && frame_.number == part.number && frame_.part == part.part;
}

bool Rail::link_is_down() const {
  return !interface_.empty() && lacks_link(interface_, socket_.fd());
}

void Rail::lose(const Status& why) {
  state_ = State::kLost;
  why_ = why;
  ::shutdown(socket_.fd().get(), SHUT_RDWR);
}

void Rail::say_farewell() {
  uint64_t moves = 0;
  if (!write(moves).ok() || written_ != 0) return;  // in the middle of a frame
  Frame frame;
  frame.kind = Frame::kFarewell;
  const iovec vector = vector_of(&frame, sizeof frame);
  (void)socket_.send(std::span(&vector, 1));
}

Status Rail::broken(int error) const {
  return {Code::kRemote, reason_of(error, shared_.limit())};
}

std::string Rail::suspicion(Milliseconds limit) {
  if (acknowledgements_.silence(socket_.fd()) > limit) return reason_of(ETIMEDOUT, limit);
  return link_is_down() ? fmt::format("the interface {} has no link; check its cable and its switch", interface_) : "";
}

bool Rail::has_sign_since(Time moment) const {
  return time_since_sign(socket_.fd()) < Clock::now() - moment;
}

}  // namespace tutti::net_socket
