// SPDX-License-Identifier: Apache-2.0
// One rail of a connection: a stream between an interface of this host and an interface of the other host.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data_socket.h"
#include "shared.h"
#include "silence.h"
#include "system.h"
#include "tutti/status.h"
#include "wire.h"

namespace tutti::net_socket {

/// A frame to be sent. Its payload must stay until the frame is acknowledged, or until the rail is given up.
struct Parcel {
  Frame frame;
  const uint8_t* payload = nullptr;
  uint32_t request = kNoRequest;    ///< kData: the place of the send in its pool
  uint64_t end = 0;                 ///< bytes of the stream up to here, when the parcel is written whole
  std::unique_ptr<uint8_t[]> kept;  ///< the payload, when the send is complete already

  static constexpr uint32_t kNoRequest = UINT32_MAX;
};

/// Thread-compatible.
class Rail {
 public:
  /// The owner of received frames.
  class User {
   public:
    /// A frame has come. For kData, the user calls receive_to() or discard().
    virtual Status take(Rail& rail, const Frame& frame) = 0;
    /// The payload of a kData frame has come whole.
    virtual Status arrived(Rail& rail, const Frame& frame) = 0;

   protected:
    ~User() = default;
  };
  /// A live rail serves. A closed rail has brought the farewell of the other end. A lost rail carries nothing any more.
  enum class State { kLive, kClosed, kLost };

  /// `sends`: this end sends data. `index` counts the rails of the connection.
  Rail(uint32_t index, DataSocket socket, bool sends, const Shared& shared);

  uint32_t index() const { return index_; }
  State state() const { return state_; }
  bool is_live() const { return state_ == State::kLive; }
  /// "10.0.0.1:4000 (eth0) to 10.0.0.2:4001 (eth1)", from the sender of data to the receiver.
  std::string ends() const;
  /// The same without ports, from this end to the other end: names the rail among all connections of the context.
  std::string path() const;

  /// Puts a frame behind all others.
  void post(Parcel parcel);
  void post(const Frame& frame) {
    Parcel parcel;
    parcel.frame = frame;
    post(std::move(parcel));
  }
  /// Copies the payload of a frame of this send if the host of the other end has it, though its process may not. True:
  /// the send is complete, and its memory free. Costs a system call.
  bool keep(uint32_t request);
  /// Bytes of payload that are not acknowledged.
  uint64_t bytes_under_way() const { return bytes_under_way_; }
  /// The other end acknowledges so many frames of data since the start. Calls each(request) for the newly acknowledged
  /// ones, apart from kept ones. kMismatch: so many were not sent.
  template <class Each>
  Status acknowledge(uint64_t frames, Each&& each) {
    while (acknowledged_ < frames) {
      if (next_ == 0) return {Code::kMismatch, ends() + ": acknowledges data that was not sent"};
      if (const uint32_t request = take_acknowledged(); request != Parcel::kNoRequest) each(request);
    }
    return {};
  }
  /// Takes the frames of data that are not acknowledged, in the order of their posts.
  std::vector<Parcel> take_unacknowledged();

  /// Writes and reads as far as it goes now; adds the system calls that moved bytes to `moves`. kRemote means that the
  /// rail carries nothing any more; each other error, that the other end breaks the protocol.
  Status advance(User& user, uint64_t& moves);
  Status write(uint64_t& moves);

  /// Where the payload of the frame goes that take() was called with.
  void receive_to(uint8_t* to) { payload_to_ = to; }
  void discard() { payload_to_ = nullptr; }
  /// Whether the rail is in the middle of this part.
  bool is_receiving(const Frame& part) const;

  /// Why the rail may be lost: the interface of this end has no link, or the other end has not acknowledged data for
  /// longer than `limit`. Empty: the rail is not suspect. Costs system calls.
  std::string suspicion(Milliseconds limit);
  bool link_is_down() const;
  /// How long the other host has not acknowledged data (Acknowledgements). Costs a system call.
  Milliseconds silence() { return acknowledgements_.silence(socket_.fd()); }
  /// Whether a sign of the other host has come after `moment`.
  bool has_sign_since(Time moment) const;
  bool has_output() const { return next_ < parcels_.size(); }
  /// The frame that names the own interface. It changes nothing, so it also serves as a probe.
  Frame name_frame() const;

  /// Set by the owner: since when the rail is suspect.
  std::optional<Time> suspect_since;
  /// Set by the owner: the rail is lost, and its frames go over other rails.
  bool replaced = false;
  void set_closed() { state_ = State::kClosed; }
  /// Ends the stream in both directions.
  void lose(const Status& why);
  /// Why the rail is lost.
  const Status& why() const { return why_; }
  /// Tells the other end that this end closes the connection, if the socket takes it at once.
  void say_farewell();

 private:
  static constexpr size_t kReadAhead = 8 << 10;

  Status read(User& user, uint64_t& moves);
  Result<size_t> read_some(uint8_t* to, size_t bytes, uint64_t& moves);
  uint32_t take_acknowledged();
  Status take_frame(User& user);
  Status finish_payload(User& user);
  void set_written(size_t bytes);
  void drop_written_controls();
  Status broken(int error) const;

  const uint32_t index_;
  const bool sends_;
  DataSocket socket_;
  const Shared& shared_;
  std::string interface_;  // of this end
  std::string here_, there_;
  std::string here_ip_, there_ip_;
  std::array<char, 16> peer_interface_{};
  State state_ = State::kLive;
  Status why_;
  Acknowledgements acknowledgements_;

  std::deque<Parcel> parcels_;  // data until it is acknowledged, other frames until they are written
  size_t next_ = 0;             // the first parcel that is not written whole
  size_t written_ = 0;          // bytes of it
  uint64_t stream_bytes_ = 0;   // written since the start
  uint64_t acknowledged_ = 0;   // frames of data
  uint64_t bytes_under_way_ = 0;

  std::unique_ptr<uint8_t[]> ahead_ = std::make_unique<uint8_t[]>(kReadAhead);
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  bool drained_ = false;  // the last read has emptied the socket
  Frame frame_;           // whose payload comes
  uint64_t payload_left_ = 0;
  uint8_t* payload_to_ = nullptr;  // null: the payload is discarded
};

}  // namespace tutti::net_socket
