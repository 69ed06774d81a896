// SPDX-License-Identifier: Apache-2.0
// One connection: messages over one or more TCP streams, in one direction. All progress is made by the thread that
// calls in.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data_socket.h"
#include "looks.h"
#include "pairs.h"
#include "shared.h"
#include "silence.h"
#include "system.h"
#include "tutti/sdk/network.h"
#include "wire.h"

namespace tutti::net_socket {

/// A posted send or receive. Lives in its connection's pool.
struct Request : sdk::Request {
  static constexpr uint32_t kMaxGroup = 8;

  bool used = false;
  bool sends = false;
  uint32_t count = 0;    ///< messages of a grouped receive
  uint32_t matched = 0;  ///< receives of the group that have a message
  uint32_t open = 0;     ///< pieces still to be sent or received
  Header header;         ///< header of a send; must stay until it is sent
  std::array<uint8_t*, kMaxGroup> addresses{};
  std::array<uint64_t, kMaxGroup> sizes{};  ///< sizes of the buffers; later, received bytes
  std::array<uint32_t, kMaxGroup> tags{};
  std::array<bool, kMaxGroup> taken{};

  bool done() const { return open == 0 && matched == count; }
};

/// Bytes of one message on one stream.
struct Piece {
  uint8_t* data = nullptr;
  uint64_t bytes = 0;
  Request* request = nullptr;  ///< null: a header, which belongs to the piece behind it
  bool is_long = false;        ///< of a long message
};

/// The two ends of a message stream. Messages arrive in the order sent; if the next one's tag has no receive posted, it
/// waits in the socket, and with it all behind it.
class Connection : public sdk::Connection {
 public:
  /// Without a partner, the connection does not pair up.
  Connection(std::vector<DataSocket> streams, bool sends, const Shared& shared, std::optional<Partner> partner = {});
  ~Connection() override;

  /// Null request: too many outstanding. kInvalidArgument for the wrong direction or too large a group.
  Status send(const void* data, uint64_t bytes, uint32_t tag, void* registration, sdk::Request*& request) override;
  Status recv(uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
              void* const* registrations, sdk::Request*& request) override;
  /// kRemote if the peer is gone, kMismatch if a message was too long or TLS refuses the bytes that came.
  Status test(sdk::Request& request, bool& done, uint64_t* bytes) override;

 private:
  static constexpr size_t kMaxRequests = 64;
  static constexpr size_t kReadAhead = 8 << 10;

  struct Stream {
    std::shared_ptr<DataSocket> socket;  // of a pair of connections, if it carries data both ways
    std::deque<Piece> pieces;            // to be sent, or to be received, in order
    Status ended;  // why nothing more can go over it; the others go on, as they may hold what was sent before
    // Bytes read from the socket before it was known where they belong; only stream 0 reads ahead.
    std::unique_ptr<uint8_t[]> ahead;
    size_t ahead_begin = 0;
    size_t ahead_end = 0;
    bool drained = false;  // the last read has emptied the socket
    // Empty reads until the end of a long message is acknowledged; 0: no end is open. Data that this rank sends in the
    // meantime carry the acknowledgement.
    uint32_t unacknowledged_looks = 0;
    Acknowledgements acknowledgements;
  };

  /// The way of a connection to the sockets of its pair.
  enum class Move {
    kNever,     // it stays
    kMay,       // it sends, and looks for a pair; or it receives, and its sender may move
    kAnnounced  // the header that says so is on its way, or has come
  };
  struct Announcement {
    Header header;
    Id connection{};
  };
  static_assert(sizeof(Announcement) == sizeof(Header) + sizeof(Id));

  Request* take_request();
  void cut(Request& request, uint8_t* data, uint64_t bytes, bool striped);
  void drive(const Request& request);
  void progress();
  bool all_moved() const;
  void announce();
  Status follow(const Announcement& announcement);
  void move_to(Sockets sockets);
  void offer();
  Pairs::PairKey pair_key() const;
  Sockets sockets() const;
  void name_ends();
  Status advance(Stream& stream);
  Status obstacle(const Request& request) const;
  Status write_out(Stream& stream);
  Status fill(Stream& stream, bool first);
  Result<bool> next_message();
  Result<bool> read_ahead(Stream& stream, size_t bytes);
  Result<bool> match(const Header& header);
  Status accept(const Header& header, Request& request, uint32_t index);
  Result<size_t> read(Stream& stream, uint8_t* to, size_t bytes);
  Result<size_t> receive(Stream& stream, uint8_t* to, size_t bytes);
  void consume(Stream& stream, size_t bytes);
  Status check_acknowledged(Stream& stream) const;
  Status lost(const Stream& stream, int error) const;
  Status forged(const Stream& stream) const;

  const bool sends_;
  const Shared& shared_;
  const std::optional<Partner> partner_;
  Move move_ = Move::kNever;
  bool offers_ = false;  // its first message makes it a pair's first connection
  uint64_t seen_offers_ = 0;
  Announcement announcement_;
  Request announced_;         // pieces of the announcement
  Sockets next_;              // sockets to move to
  std::vector<Stream> left_;  // streams before the move; closed with the connection
  std::string ends_;          // "10.0.0.1:4000 to 10.0.0.2:4001", for messages
  std::vector<Stream> streams_;
  std::array<Request, kMaxRequests> requests_;
  std::deque<Request*> receives_;  // posted and not fully matched, in order
  uint64_t moves_ = 0;             // reads and writes that moved bytes
  Looks looks_;
  uint32_t silent_reads_ = 0;
};

}  // namespace tutti::net_socket
