// SPDX-License-Identifier: Apache-2.0
// A connection that carries frames, served by the poller.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "base/fd.h"
#include "bootstrap/poller.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

/// Why a link is no more.
struct Loss {
  enum class Kind { kEnded, kBroke, kNonsense };
  Kind kind = Kind::kEnded;
  std::string text;  ///< "its process ended without leaving", "Connection timed out", "it sent more than a rank may"
};

/// Everything here is for the poller's thread. Links do not outlive their poller.
class Link : public std::enable_shared_from_this<Link> {
 public:
  struct Events {
    std::function<void(Frame)> received;
    std::function<void(const Loss& loss)> closed;
  };

  /// Starts to receive. Payloads above `max_payload_bytes` close the link, before anything is allocated for them.
  static std::shared_ptr<Link> open(Poller& poller, base::Fd socket, uint32_t max_payload_bytes, Events events);
  Link(Poller& poller, base::Fd socket, uint32_t max_payload_bytes, Events events);
  ~Link() { close(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Sends as much as the socket takes now, and the rest later. A closed link takes the frame and drops it.
  void send(Header header, std::shared_ptr<const Bytes> payload = nullptr);
  void send(Header header, Bytes payload) { send(header, std::make_shared<const Bytes>(std::move(payload))); }

  /// Calls `done` once, when the system has taken all frames or the link is closed, at once or later.
  void when_sent(std::function<void()> done);

  /// To be called when the peer has proved its identity.
  void trust(uint32_t max_payload_bytes, base::Milliseconds loss);
  /// Sets the receiver of later events.
  void set_events(Events events);
  /// No event comes after this.
  void close();
  bool is_open() const { return socket_.valid(); }
  /// The addresses of both ends, known beyond the end of the connection.
  const std::string& here() const { return here_; }
  const std::string& there() const { return there_; }

 private:
  struct Outgoing {
    Header header;
    std::shared_ptr<const Bytes> payload;
    size_t sent = 0;  ///< sent bytes of header and payload together
  };

  void serve();
  bool receive();  ///< false when there is no more for now
  void deliver();
  void flush();
  void report_sent();
  bool lose(const Loss& loss);  ///< false

  Poller& poller_;
  base::Fd socket_;
  const std::string here_;
  const std::string there_;
  uint32_t max_payload_bytes_;
  std::shared_ptr<const Events> events_;
  Frame incoming_;
  size_t received_ = 0;  ///< received bytes of header and payload together
  std::deque<Outgoing> outgoing_;
  bool waits_to_send_ = false;
  std::function<void()> sent_;  ///< null unless when_sent() waits
};

}  // namespace tutti::bootstrap
