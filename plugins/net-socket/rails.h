// SPDX-License-Identifier: Apache-2.0
// The rails of a connection that uses several interfaces.
//
// The receiver numbers its receives and announces each one over the first live rail. The sender finds the receive of
// each message by its tag, and sends the message as frames, each of which names the receive and a part of the message.
// So each frame can be received whenever it comes, on whatever rail, and no rail waits for another one. The receiver
// counts the frames that have arrived on a rail, and acknowledges the count on the same rail. A send is complete when
// all its frames are acknowledged. A short message is also complete when TCP has acknowledged it: its sender then keeps
// a copy, because the process of the other end has not taken it yet.
//
// If a rail is lost, both ends give it up, and tell each other over all other rails. The sender sends the frames again
// that are not acknowledged; the receiver announces the receives again that are not complete. The receiver drops parts
// that it has, the sender drops receives that it knows: so each message is delivered exactly once.
//
// A rail is lost at once if its stream ends. If its interface loses its link, or if the other host is silent on it, a
// sign of the other host on another rail is needed, too: where all links are cut, no rail is given up before the
// connection is.
#pragma once

#include <memory>
#include <vector>

#include "rail.h"
#include "shared.h"
#include "system.h"
#include "tutti/status.h"

namespace tutti::net_socket {

/// The stream of one rail, and the place of the rail among all rails of the connection.
struct RailStream {
  uint32_t index = 0;
  DataSocket socket;
};

/// Thread-compatible.
class Rails {
 public:
  class User : public Rail::User {
   public:
    /// The rail is lost: its frames go over live rails. There is one.
    virtual void replace(Rail& lost) = 0;

   protected:
    ~User() = default;
  };

  Rails(std::vector<RailStream> streams, bool sends, const Shared& shared);
  /// Tells the other end that the connection ends.
  ~Rails();
  Rails(const Rails&) = delete;
  Rails& operator=(const Rails&) = delete;

  /// Reads and writes on all live rails. The system calls that moved bytes.
  uint64_t progress(User& user);
  /// Writes on all live rails.
  uint64_t write(User& user);
  /// Takes a frame that concerns the rails themselves: kGivenUp or kFarewell.
  Status take(Rail& carrier, const Frame& frame);

  /// Why the connection has ended; ok: it has not.
  const Status& failure() const { return failure_; }
  size_t live_count() const;
  /// The first live rail. Only where there is one.
  Rail& first_live();
  /// The live rail with the fewest bytes under way. Only where there is one.
  Rail& least_busy();
  std::vector<std::unique_ptr<Rail>>& all() { return rails_; }

 private:
  static constexpr Milliseconds kJudgeInterval{250};

  void note(Rail& rail, const Status& status);
  bool replace_lost(User& user);
  void judge();
  void judge(Rail& rail, Time now);
  bool confirms(const Rail& suspect, Time since);
  void tell_lost();
  void report(const Rail& rail);
  Status ended() const;

  const Shared& shared_;
  const Milliseconds rail_limit_;  // the silence after which a rail is suspect
  std::vector<std::unique_ptr<Rail>> rails_;
  Status failure_;
  Time next_judgement_{};
};

}  // namespace tutti::net_socket
