// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>

#include "base/fork.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/link.h"

namespace tutti::bootstrap {
namespace {

static_assert(Bootstrap::kMaxBytes == kMaxPayloadBytes);
constexpr size_t kMaxDescriptionBytes = 4096;
/// The hub knows the deadlines and tells who missed them; this is how much later its answer may come.
constexpr base::Milliseconds kGrace(5000);
constexpr base::Milliseconds kGoodbyeLimit(2000);

base::Time with_grace(base::Time deadline) {
  return deadline > base::kNever - kGrace ? base::kNever : deadline + kGrace;
}

Bytes hello_payload(const Secret& secret, int rank, int rank_count, base::Milliseconds peer_loss) {
  Hello hello;
  hello.secret = secret;
  hello.rank = rank;
  hello.rank_count = rank_count;
  hello.pid = static_cast<uint32_t>(::getpid());
  hello.peer_loss_ms = static_cast<uint32_t>(std::clamp<int64_t>(peer_loss.count(), 0, UINT32_MAX));
  ::gethostname(hello.host.data(), hello.host.size());
  const auto bytes = std::as_bytes(std::span(&hello, 1));
  return Bytes(bytes.begin(), bytes.end());
}

}  // namespace

/// The connection to the hub: frames come and go on the poller's thread, callers wait for the answers.
class Bootstrap::Client {
 public:
  Client(std::shared_ptr<Poller> poller, const base::SocketAddress& hub, int rank, int rank_count)
      : poller_(std::move(poller)), hub_(hub.to_string()), rank_(rank), rank_count_(rank_count) {}
  ~Client() { leave(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int rank() const { return rank_; }
  int size() const { return rank_count_; }
  /// In a forked child of the process that joined.
  bool forked() const { return !poller_->running(); }

  Status join(base::Fd socket, const Secret& secret, base::Milliseconds peer_loss, base::Time deadline) {
    base::set_connection_options(socket, peer_loss);
    poller_->run([&] {
      link_ = Link::open(*poller_, std::move(socket), kMaxPayloadBytes,
                         {.received = [this](const Frame& frame) { receive(frame); },
                          .closed = [this](const std::string& why) { lose_hub(why); }});
    });
    auto joined = exchange({.kind = Kind::kHello}, hello_payload(secret, rank_, rank_count_, peer_loss), deadline);
    const std::lock_guard lock(mutex_);
    joined_ = joined.ok();
    return joined.status();
  }

  /// Sends a question and waits for its answer, a failure of the group, or the end of the connection. The answers to
  /// queries are waited for in spite of a failure.
  Result<Bytes> exchange(Header header, Bytes payload, base::Time deadline) {
    const bool ignores_failure = header.kind == Kind::kQuery;
    std::unique_lock lock(mutex_);
    if (Status status = usable(ignores_failure); !status.ok()) return status;
    header.id = ++exchanges_;
    header.timeout_ms = static_cast<uint32_t>(base::left_until(deadline).count());
    const std::optional<Frame>& answer = answers_[header.id];
    send(header, std::move(payload));
    changed_.wait_until(lock, with_grace(deadline), [&] { return answer || !usable(ignores_failure).ok(); });
    const std::optional<Frame> received = std::move(answers_.extract(header.id).mapped());
    if (received) {
      if (const auto code = static_cast<Code>(received->header.code); code != Code::kOk)
        return Status(code, to_text(received->payload));
      return received->payload;
    }
    if (Status status = usable(ignores_failure); !status.ok()) return status;
    return Status(Code::kTimeout, fmt::format("the hub at {} does not answer", hub_));
  }

  void set_callbacks(Callbacks callbacks) {
    poller_->run([&] {
      callbacks_ = std::move(callbacks);
      report_failure();
      report_departures();
    });
  }

  std::optional<FailureReport> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void post_abort(std::string_view text) {
    fail({FailureKind::kAborted, rank_, std::string(text)});
    const std::lock_guard lock(mutex_);
    if (over_.ok()) send({.kind = Kind::kAbort}, to_bytes(text.substr(0, kMaxPayloadBytes)));
  }

  void announce(const Ending& ending) {
    const std::lock_guard lock(mutex_);
    if (joined_ && over_.ok()) send({.kind = Kind::kEnding}, encode(ending));
  }

  void leave() {
    set_callbacks({});
    {
      std::unique_lock lock(mutex_);
      if (left_) return;
      left_ = true;
      if (joined_ && over_.ok() && poller_->running()) {
        over_ = Status(Code::kFailedPrecondition, "this rank has left the bootstrap");
        changed_.notify_all();
        send({.kind = Kind::kLeave}, {});
        changed_.wait_until(lock, base::time_in(kGoodbyeLimit), [&] { return disconnected_; });
      }
    }
    poller_->run([&] {
      if (link_) link_->close();
    });
  }

 private:
  void send(const Header& header, Bytes payload) {
    poller_->post(
        [this, header, shared = std::make_shared<const Bytes>(std::move(payload))] { link_->send(header, shared); });
  }

  /// Under mutex_.
  Status usable(bool ignores_failure) const {
    if (!poller_->running()) return {Code::kFailedPrecondition, "a forked child cannot use its parent's bootstrap"};
    if (failure_ && !ignores_failure) return failure_->status();
    return over_;
  }

  void fail(FailureReport report) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = std::move(report);
      changed_.notify_all();
    }
    poller_->post([this] { report_failure(); });
  }

  // On the poller's thread.

  void receive(const Frame& frame) {
    const Header& header = frame.header;
    if (header.kind == Kind::kReply) {
      const std::lock_guard lock(mutex_);
      if (const auto waiting = answers_.find(header.id); waiting != answers_.end()) waiting->second = frame;
      changed_.notify_all();
    } else if (header.kind == Kind::kFailure) {
      fail({static_cast<FailureKind>(header.code), header.rank, to_text(frame.payload)});
    } else if (header.kind == Kind::kAsk) {
      const std::string text = callbacks_.describe ? callbacks_.describe() : std::string();
      link_->send({.kind = Kind::kAnswer, .id = header.id},
                  to_bytes(std::string_view(text).substr(0, kMaxDescriptionBytes)));
    } else if (header.kind == Kind::kDeparture) {
      take_departure(frame);
    } else if (header.kind == Kind::kClosing) {
      end(fmt::format("the hub at {} has closed: the process that made the unique id has ended", hub_));
    }
  }

  void lose_hub(const std::string& why) {
    bool failed = false;
    {
      const std::lock_guard lock(mutex_);
      disconnected_ = true;
      changed_.notify_all();
      failed = over_.ok() && joined_;
    }
    if (failed) fail({FailureKind::kHubLost, -1, fmt::format("the hub at {} is lost: {}", hub_, why)});
    end(
        fmt::format("the hub at {} closed the connection ({}): its process ended, or it serves another unique id with "
                    "another secret",
                    hub_, why));
  }

  void end(std::string text) {
    const std::lock_guard lock(mutex_);
    if (over_.ok()) over_ = Status(Code::kRemote, std::move(text));
    changed_.notify_all();
  }

  void take_departure(const Frame& frame) {
    auto departure = decode_departure(frame.header.rank, frame.payload);
    if (!departure.ok()) {
      link_->close();
      return lose_hub("it sent what no hub sends");
    }
    unreported_.push_back(*std::move(departure));
    report_departures();
  }

  void report_departures() {
    if (!callbacks_.on_departure) return;
    for (const Departure& departure : std::exchange(unreported_, {})) callbacks_.on_departure(departure);
  }

  void report_failure() {
    if (reported_ || !callbacks_.on_failure) return;
    if (const auto report = failure()) {
      reported_ = true;
      callbacks_.on_failure(*report);
    }
  }

  const std::shared_ptr<Poller> poller_;
  const std::string hub_;
  const int rank_;
  const int rank_count_;

  // Of the poller's thread.
  std::shared_ptr<Link> link_;
  Callbacks callbacks_;
  bool reported_ = false;
  std::vector<Departure> unreported_;

  mutable std::mutex mutex_;  ///< guards what follows
  std::condition_variable changed_;
  std::map<uint32_t, std::optional<Frame>> answers_;  ///< by the id of who waits
  uint32_t exchanges_ = 0;
  std::optional<FailureReport> failure_;
  Status over_;  ///< why nothing can be asked of the hub any more
  bool joined_ = false;
  bool left_ = false;
  bool disconnected_ = false;
};

Bootstrap::Bootstrap(std::unique_ptr<Client> client) : client_(std::move(client)) {}
Bootstrap::~Bootstrap() {
  if (client_ != nullptr && client_->forked()) base::abandon(std::shared_ptr<Client>(std::move(client_)));
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(const UniqueId& id, int rank, int rank_count, base::Time deadline,
                                                   base::Milliseconds peer_loss) {
  TUTTI_ASSIGN(const Endpoint endpoint, endpoint_of(id));
  TUTTI_ASSIGN(auto poller, Poller::shared());
  const std::string context = fmt::format("rank {} of {}", rank, rank_count);
  auto socket = base::connect_to(endpoint.address, deadline);
  if (!socket.ok()) return socket.status().with_context(context + " cannot reach the hub");
  auto client = std::make_unique<Client>(std::move(poller), endpoint.address, rank, rank_count);
  TUTTI_TRY(client->join(*std::move(socket), endpoint.secret, peer_loss, deadline));
  return std::unique_ptr<Bootstrap>(new Bootstrap(std::move(client)));
}

int Bootstrap::rank() const {
  return client_->rank();
}
int Bootstrap::size() const {
  return client_->size();
}

Result<std::vector<std::vector<std::byte>>> Bootstrap::all_gather(std::span<const std::byte> mine,
                                                                  base::Time deadline) {
  if (mine.size() > kMaxBytes)
    return Status(Code::kInvalidArgument,
                  fmt::format("bootstrap all_gather of {} bytes: the limit is {}", mine.size(), kMaxBytes));
  const Header call = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kAllGather)};
  TUTTI_ASSIGN(const Bytes gathered, client_->exchange(call, Bytes(mine.begin(), mine.end()), deadline));
  return unpack(gathered);
}

Result<std::vector<std::byte>> Bootstrap::broadcast(int root, std::span<const std::byte> bytes, base::Time deadline) {
  if (root < 0 || root >= size() || bytes.size() > kMaxBytes - sizeof(uint32_t) * static_cast<size_t>(size()))
    return Status(Code::kInvalidArgument, fmt::format("bootstrap broadcast of {} bytes from rank {}: the limits are {} "
                                                      "bytes and ranks 0..{}",
                                                      bytes.size(), root, kMaxBytes, size() - 1));
  const Header call = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBroadcast), .rank = root};
  return client_->exchange(call, root == rank() ? Bytes(bytes.begin(), bytes.end()) : Bytes(), deadline);
}

Status Bootstrap::barrier(base::Time deadline) {
  const Header call = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBarrier)};
  return client_->exchange(call, {}, deadline).status();
}

void Bootstrap::set_callbacks(Callbacks callbacks) {
  client_->set_callbacks(std::move(callbacks));
}
std::optional<FailureReport> Bootstrap::failure() const {
  return client_->failure();
}
void Bootstrap::post_abort(std::string_view text) {
  client_->post_abort(text);
}

Result<std::vector<std::string>> Bootstrap::query(base::Time deadline) {
  TUTTI_ASSIGN(const Bytes packed, client_->exchange({.kind = Kind::kQuery}, {}, deadline));
  TUTTI_ASSIGN(const std::vector<Bytes> answers, unpack(packed));
  std::vector<std::string> texts;
  texts.reserve(answers.size());
  for (const Bytes& answer : answers) texts.push_back(to_text(answer));
  return texts;
}

void Bootstrap::announce(const Ending& ending) {
  client_->announce(ending);
}

void Bootstrap::leave() {
  client_->leave();
}

}  // namespace tutti::bootstrap
