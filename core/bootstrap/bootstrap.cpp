// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "base/fork.h"
#include "bootstrap/hub.h"
#include "bootstrap/interface.h"
#include "bootstrap/knock.h"
#include "bootstrap/sealed_calls.h"
#include "log/log.h"

namespace tutti::bootstrap {
namespace {

static_assert(Bootstrap::kMaxBytes == kMaxPayloadBytes);
/// The hub knows the deadlines and names the ranks that missed them; its answer may come later by this time.
constexpr base::Milliseconds kGrace(5000);
/// For a process that was frozen: it first reads the answers that came in the meantime.
constexpr base::Milliseconds kThaw(2000);
constexpr base::Milliseconds kGoodbyeLimit(2000);
/// When a stopped hub counts as silent: its own answer to a missed deadline would have come by then.
constexpr base::Milliseconds kHubPatience(3000);
/// How much later than its deadline the answers to a question may come.
constexpr base::Milliseconds kQuestionGrace(1000);

base::Time later(base::Time deadline, base::Milliseconds pause) {
  return deadline > base::kNever - pause ? base::kNever : deadline + pause;
}

Status no_hub(const Status& why, int rank, int rank_count) {
  const char* const remedy = why.code() == Code::kTimeout
                                 ? "; check that rank 0, or the process that made the id, has started and has not ended"
                                 : "";
  return {why.code(), fmt::format("rank {} of {} cannot reach the hub: {}{}", rank, rank_count, why.text(), remedy)};
}

}  // namespace

/// The connections to the hubs: frames come and go on the poller's thread, callers wait for the answers. Every frame
/// goes to both hubs, and the first answer counts.
class Bootstrap::Client {
 public:
  struct Options {
    int rank;
    int rank_count;
    base::Milliseconds peer_loss;
  };
  Client(std::shared_ptr<Poller> poller, Options options) : poller_(std::move(poller)), options_(options) {}
  ~Client() {
    leave();
    poller_->run([this] { *alive_ = false; });
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.rank_count; }
  /// In a forked child of the process that joined.
  bool forked() const { return !poller_->running(); }

  Status join(const Endpoint& endpoint, const std::string& interfaces, base::Time deadline) {
    const auto ask_hub = [this](const Header& call, Bytes bytes, base::Time limit) {
      return exchange(call, std::move(bytes), limit);
    };
    TUTTI_ASSIGN(calls_, SealedCalls::create(endpoint.secret, {rank(), size()}, ask_hub));
    uint32_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      id = open_exchange();
    }
    auto knocked = knock(endpoint, {.id = id}, hello(), deadline);
    if (!knocked.ok()) return no_hub(knocked.status(), rank(), size());
    base::Fd socket = *std::move(knocked);
    const base::SocketAddress here = base::local_address(socket);
    connect(kPrimary, endpoint.address, std::move(socket));
    std::unique_lock lock(mutex_);
    TUTTI_ASSIGN(const Bytes reply, wait_for_answer(lock, {.id = id}, deadline));
    lock.unlock();
    TUTTI_ASSIGN(const Lineup lineup, decode_lineup(reply, size()));
    poller_->run([&] {
      hubs_[kPrimary].process = lineup.primary;
      hubs_[kStandby].process = lineup.standby;
    });
    lock.lock();
    joined_ = true;
    lock.unlock();
    return lineup.standby_rank() < 0 ? Status() : join_standby(endpoint, lineup, {interfaces, here}, deadline);
  }

  /// Sends a question and waits for its answer, a failure of the group, or the end of the connections. The answers to
  /// queries are waited for in spite of a failure.
  Result<Bytes> exchange(Header header, Bytes payload, base::Time deadline) {
    std::unique_lock lock(mutex_);
    if (Status status = usable(header.kind == Kind::kQuery); !status.ok()) return status;
    header.id = open_exchange();
    header.timeout_ms = static_cast<uint32_t>(base::left_until(deadline).count());
    send(header, std::move(payload));
    return wait_for_answer(lock, header, deadline);
  }

  SealedCalls& calls() { return *calls_; }

  void set_callbacks(Callbacks callbacks) {
    poller_->run([&] {
      callbacks_ = std::move(callbacks);
      drop_questions();
      poller_->cancel(tick_);
      if (callbacks_.on_tick && callbacks_.tick.count() > 0) schedule_tick();
      report_failure();
      report_departures();
    });
  }

  void ask(Bytes question, base::Time deadline, Answered done) {
    post([this, question = std::move(question), deadline, done = std::move(done)]() mutable {
      Header header{.kind = Kind::kQuery};
      {
        const std::lock_guard lock(mutex_);
        if (Status status = usable(true); !status.ok()) return done(status);
        header.id = ++exchanges_;
      }
      header.timeout_ms = static_cast<uint32_t>(base::left_until(deadline).count());
      const auto timer = poller_->at(deadline + kQuestionGrace, [this, id = header.id] {
        const auto open = questions_.extract(id);
        open.mapped().done(Status(Code::kTimeout, "no hub answers: its process is stopped, or cannot be reached"));
      });
      questions_.emplace(header.id, Question{std::move(done), timer});
      send_now(header, std::make_shared<const Bytes>(std::move(question)));
    });
  }

  std::optional<FailureReport> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  bool all_know_failure() const {
    const std::lock_guard lock(mutex_);
    return failure_ || calls_failed_;
  }

  bool hears() const {
    const std::lock_guard lock(mutex_);
    return over_.ok();
  }

  std::optional<FailureReport> wait_for_failure(base::Time deadline) const {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [this] { return failure_ || !over_.ok(); });
    return failure_;
  }

  void post_abort(std::string_view text) {
    fail({FailureKind::kAborted, rank(), std::string(text)});
    const std::lock_guard lock(mutex_);
    if (over_.ok()) send({.kind = Kind::kAbort}, to_bytes(text.substr(0, kMaxPayloadBytes)));
  }

  void announce(const Ending& ending) {
    const std::lock_guard lock(mutex_);
    if (joined_ && over_.ok()) send({.kind = Kind::kEnding}, encode(ending));
  }

  void leave() {
    {
      std::unique_lock lock(mutex_);
      if (std::exchange(left_, true)) return;
      if (joined_ && over_.ok() && poller_->running()) {
        over_ = Status(Code::kFailedPrecondition, "this rank has left the bootstrap");
        changed_.notify_all();
        send({.kind = Kind::kLeave}, {});
        changed_.wait_until(lock, base::time_in(kGoodbyeLimit), [&] { return connections_ == 0; });
      }
    }
    set_callbacks({});
    poller_->run([&] {
      for (HubEnd& hub : hubs_)
        if (hub.link) hub.link->close();
    });
  }

 private:
  enum { kPrimary, kStandby };
  /// This rank's end of the connection to a hub. For the poller's thread.
  struct HubEnd {
    std::shared_ptr<Link> link;  ///< null before it is connected
    std::string address;
    HubProcess process;    ///< known once all have joined
    bool in_use = false;   ///< gets all frames; the primary from the start, the standby when all ranks have reached it
    bool closing = false;  ///< its process ends in good order
    void use() { in_use = link->is_open() && !closing; }
    bool serves() const { return in_use && link && link->is_open() && !closing; }
  };

  /// Runs the task soon on the poller's thread, unless this client is gone by then. A handler that runs while the
  /// client leaves may post a task behind the client's last task.
  void post(Poller::Task task) {
    poller_->post([alive = alive_, task = std::move(task)] {
      if (*alive) task();
    });
  }

  Hello hello() const { return hello_of(options_.rank, options_.rank_count, options_.peer_loss); }

  void connect(int index, const base::SocketAddress& address, base::Fd socket) {
    base::set_connection_options(socket, options_.peer_loss);
    poller_->run([&] {
      HubEnd& hub = hubs_.at(static_cast<size_t>(index));
      hub.address = address.to_string();
      hub.in_use = index == kPrimary;
      {
        const std::lock_guard lock(mutex_);
        ++connections_;
      }
      hub.link = Link::open(*poller_, std::move(socket), kMaxPayloadBytes,
                            {.received = [this, &hub](Frame frame) { receive(hub, std::move(frame)); },
                             .closed = [this, &hub](const Loss& loss) { lose(hub, loss); }});
    });
  }

  // The standby.

  /// The listener address of a possible standby.
  struct Site {
    const std::string& interfaces;
    base::SocketAddress primary_sees;  ///< this rank's address
  };

  /// All ranks use the standby, or none does.
  Status join_standby(const Endpoint& primary, const Lineup& lineup, const Site& site, base::Time deadline) {
    std::weak_ptr<Hub> own;
    Result<Bytes> address = Bytes();
    if (lineup.standby_rank() == rank()) {
      const auto served = start_standby(primary.secret, lineup, site, own);
      address = served.ok() ? pack(std::array{to_bytes(served->to_string())})
                            : pack(std::array{Bytes(), to_bytes(served.status().text())});
    }
    const Header broadcast = {
        .kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBroadcast), .rank = lineup.standby_rank()};
    auto announced = exchange(broadcast, *address, deadline);
    const Status reached = announced.ok() ? reach_standby(primary.secret, *announced, deadline) : announced.status();
    const Header gather = {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kAllGather)};
    auto all = announced.ok() ? exchange(gather, to_bytes(reached.text()), deadline) : announced;
    Result<bool> complete = all.ok() ? all_reached(*all, lineup) : Result<bool>(all.status());
    const bool use = complete.ok() && *complete;
    poller_->run([&] { use ? hubs_[kStandby].use() : drop_standby(own); });
    return complete.status();
  }

  Result<base::SocketAddress> start_standby(const Secret& secret, const Lineup& lineup, const Site& site,
                                            std::weak_ptr<Hub>& made) {
    base::SocketAddress address = site.primary_sees;
    if (!site.interfaces.empty()) {
      TUTTI_ASSIGN(const Interface chosen, choose_interface(site.interfaces));
      address = chosen.address;
    }
    address.set_port(0);
    return Hub::serve_standby(*poller_, address, secret, lineup, size(), made);
  }

  Status reach_standby(const Secret& secret, const Bytes& announced, base::Time deadline) {
    TUTTI_ASSIGN(const std::vector<Bytes> parts, unpack(announced));
    if (parts.size() != 1)
      return Status(Code::kRemote, "it did not start" + (parts.size() == 2 ? ": " + to_text(parts[1]) : ""));
    TUTTI_ASSIGN(const base::SocketAddress address, base::SocketAddress::parse(to_text(parts[0])));
    const base::Time limit = std::min(deadline, base::time_in(options_.peer_loss));
    TUTTI_ASSIGN(base::Fd socket, knock({address, secret}, {}, hello(), limit));
    connect(kStandby, address, std::move(socket));
    return {};
  }

  Result<bool> all_reached(const Bytes& packed, const Lineup& lineup) const {
    TUTTI_ASSIGN(const std::vector<Bytes> reports, unpack(packed));
    const auto failed = std::find_if(reports.begin(), reports.end(), [](const Bytes& text) { return !text.empty(); });
    if (failed == reports.end()) return true;
    if (rank() == 0)
      log::warn(
          "bootstrap: rank {} cannot reach a standby hub in the process of {}: {}. All go on without it: if the "
          "process "
          "of the hub ({}) ends, no rank learns who is lost",
          failed - reports.begin(), to_text(lineup.standby), to_text(*failed), to_text(lineup.primary));
    return false;
  }

  void drop_standby(const std::weak_ptr<Hub>& own) {
    HubEnd& hub = hubs_[kStandby];
    if (hub.link) hub.link->send({.kind = Kind::kLeave}, Bytes());
    if (const auto mine = own.lock()) poller_->release(mine.get());
  }

  // Exchanges. Under mutex_.

  uint32_t open_exchange() {
    answers_[++exchanges_];
    return exchanges_;
  }

  Result<Bytes> wait_for_answer(std::unique_lock<std::mutex>& lock, const Header& header, base::Time deadline) {
    const bool ignores_failure = header.kind == Kind::kQuery;
    const std::optional<Frame>& answer = answers_[header.id];
    const auto done = [&] { return answer || !usable(ignores_failure).ok(); };
    if (!changed_.wait_until(lock, later(deadline, kHubPatience), done)) {
      post([this] { rely(hubs_[kStandby], Rely::kNoAnswer, {}); });
      changed_.wait_until(lock, std::max(later(deadline, kGrace), base::time_in(kThaw)), done);
    }
    std::optional<Frame> received = std::move(answers_.extract(header.id).mapped());
    if (received) {
      if (const auto code = static_cast<Code>(received->header.code); code != Code::kOk) {
        calls_failed_ = calls_failed_ || header.kind == Kind::kCall;
        return Status(code, to_text(received->payload));
      }
      return std::move(received->payload);
    }
    if (Status status = usable(ignores_failure); !status.ok()) return status;
    return Status(Code::kTimeout, "the hub does not answer: its process is stopped, or cannot be reached");
  }

  void send(const Header& header, Bytes payload) {
    post([this, header, shared = std::make_shared<const Bytes>(std::move(payload))] { send_now(header, shared); });
  }

  /// On the poller's thread.
  void send_now(const Header& header, const std::shared_ptr<const Bytes>& payload) const {
    for (const HubEnd& hub : hubs_)
      if (hub.serves()) hub.link->send(header, payload);
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
    post([this] { report_failure(); });
  }

  // On the poller's thread.

  void receive(HubEnd& hub, Frame frame) {
    const Header header = frame.header;
    if (header.kind == Kind::kReply) {
      if (questions_.contains(header.id)) return take_answers(frame);
      const std::lock_guard lock(mutex_);
      if (const auto waiting = answers_.find(header.id); waiting != answers_.end() && !waiting->second)
        waiting->second = std::move(frame);
      changed_.notify_all();
    } else if (header.kind == Kind::kFailure) {
      // A standby that some rank could not reach takes this rank for lost; the primary knows better.
      if (hub.in_use) take_failure(hub, frame);
    } else if (header.kind == Kind::kAsk) {
      Bytes answer = callbacks_.answer ? callbacks_.answer(frame.payload) : Bytes();
      answer.resize(std::min(answer.size(), kMaxAnswerBytes));
      hub.link->send({.kind = Kind::kAnswer, .id = header.id}, std::make_shared<const Bytes>(std::move(answer)));
    } else if (header.kind == Kind::kDeparture) {
      take_departure(hub, frame);
    } else if (header.kind == Kind::kClosing) {
      hub.closing = true;
      if (!hub.in_use) return;
      if (HubEnd& other = other_than(hub); other.serves()) return rely(other, Rely::kClosed, {});
      end(fmt::format("the hub at {} has closed: the process of {} has ended", hub.address, to_text(hub.process)));
    }
  }

  /// Passes the failure on to the other hub, before that hub hears that this rank leaves because of the failure.
  void take_failure(HubEnd& hub, const Frame& frame) {
    const Header& header = frame.header;
    if (HubEnd& other = other_than(hub); other.serves() && !failure())
      other.link->send({.kind = Kind::kReport, .code = header.code, .rank = header.rank}, frame.payload);
    fail({static_cast<FailureKind>(header.code), header.rank, to_text(frame.payload)});
  }

  struct Question {
    Answered done;
    Poller::Timer limit;
  };

  void take_answers(const Frame& frame) {
    const auto open = questions_.extract(frame.header.id);
    poller_->cancel(open.mapped().limit);
    const auto code = static_cast<Code>(frame.header.code);
    open.mapped().done(code == Code::kOk ? decode_answers(frame.payload)
                                         : Result<std::vector<Answer>>(Status(code, to_text(frame.payload))));
  }

  void drop_questions() {
    for (const auto& [id, question] : questions_) poller_->cancel(question.limit);
    questions_.clear();
  }

  void schedule_tick() {
    tick_ = poller_->at(base::time_in(callbacks_.tick), [this] {
      schedule_tick();
      callbacks_.on_tick();
    });
  }

  HubEnd& other_than(const HubEnd& hub) { return hubs_.at(&hub == hubs_.data() ? kStandby : kPrimary); }

  void rely(HubEnd& hub, Rely why, std::string_view text) {
    if (hub.serves()) hub.link->send({.kind = Kind::kRely, .code = static_cast<uint16_t>(why)}, to_bytes(text));
  }

  void lose(HubEnd& hub, const Loss& loss) {
    {
      const std::lock_guard lock(mutex_);
      --connections_;
      changed_.notify_all();
      if (left_) return;
    }
    if (!hub.in_use) return;
    if (HubEnd& other = other_than(hub); other.serves()) {
      const bool ended = loss.kind == Loss::Kind::kEnded;
      if (!hub.closing) rely(other, ended ? Rely::kEnded : Rely::kBroke, text_of_break(hub, loss));
      return;
    }
    lose_last(hub, loss);
  }

  std::string text_of_break(const HubEnd& hub, const Loss& loss) const {
    return fmt::format("its connection from {} to {} broke: {}", hub.link->here(), hub.link->there(), loss.text);
  }

  /// The ranks of its process are lost with the hub, unless they have left.
  void lose_last(HubEnd& hub, const Loss& loss) {
    bool joined = false;
    {
      const std::lock_guard lock(mutex_);
      joined = joined_;
    }
    for (auto& [id, question] : std::exchange(questions_, {})) {
      poller_->cancel(question.limit);
      question.done(Status(Code::kRemote, fmt::format("the hub at {} is gone: {}", hub.address, loss.text)));
    }
    std::vector<int>& ranks = hub.process.ranks;
    const bool had_ranks = !ranks.empty();
    std::erase_if(ranks, [this](int rank) { return departed_.contains(rank); });
    const bool in_order = hub.closing || (had_ranks && ranks.empty());
    if (joined && !in_order) {
      const bool named = loss.kind == Loss::Kind::kEnded && had_ranks;
      const std::string what =
          named ? fmt::format("{} {} lost: {}", to_text(hub.process), ranks.size() > 1 ? "are" : "is", loss.text)
                : fmt::format("rank {} has lost the hub in the process of {}: {}", rank(), to_text(hub.process),
                              text_of_break(hub, loss));
      fail({named ? FailureKind::kPeerLost : FailureKind::kHubLost, named ? ranks.front() : -1, what});
    }
    end(fmt::format("the hub at {} closed the connection: {}", hub.address, loss.text));
  }

  void end(std::string text) {
    const std::lock_guard lock(mutex_);
    if (over_.ok()) over_ = Status(Code::kRemote, std::move(text));
    changed_.notify_all();
  }

  void take_departure(HubEnd& hub, const Frame& frame) {
    auto departure = decode_departure(frame.header.rank, frame.payload);
    if (!departure.ok()) {
      hub.link->close();
      return lose(hub, {Loss::Kind::kNonsense, "it sent what no hub sends"});
    }
    if (!departed_.insert(departure->rank).second) return;
    unreported_.push_back(*std::move(departure));
    report_departures();
  }

  /// A rank that fails tells the failure before it leaves.
  void report_departures() {
    report_failure();
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
  const Options options_;

  // For the poller's thread.
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::array<HubEnd, 2> hubs_;
  Callbacks callbacks_;
  bool reported_ = false;
  std::set<int> departed_;
  std::vector<Departure> unreported_;
  std::map<uint32_t, Question> questions_;  ///< by their ids
  Poller::Timer tick_{base::kNever, 0};

  std::unique_ptr<SealedCalls> calls_;

  mutable std::mutex mutex_;  ///< guards the members below
  mutable std::condition_variable changed_;
  std::map<uint32_t, std::optional<Frame>> answers_;  ///< by the id of the waiting call
  uint32_t exchanges_ = 0;
  std::optional<FailureReport> failure_;
  Status over_;  ///< why nothing can be asked of the hub any more
  bool joined_ = false;
  bool left_ = false;
  bool calls_failed_ = false;  ///< a collective call, and so all later ones, on every rank
  int connections_ = 0;
};

Bootstrap::Bootstrap(std::unique_ptr<Client> client) : client_(std::move(client)) {}
Bootstrap::~Bootstrap() {
  if (client_ != nullptr && client_->forked()) base::abandon(std::shared_ptr<Client>(std::move(client_)));
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(const UniqueId& id, int rank, int rank_count, base::Time deadline,
                                                   base::Milliseconds peer_loss, const std::string& interfaces) {
  TUTTI_ASSIGN(const Endpoint endpoint, endpoint_of(id));
  TUTTI_ASSIGN(auto poller, Poller::shared());
  auto client = std::make_unique<Client>(std::move(poller), Client::Options{rank, rank_count, peer_loss});
  if (const Status joined = client->join(endpoint, interfaces, deadline); !joined.ok()) return joined;
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
  return client_->calls().all_gather(mine, deadline);
}

Result<std::vector<std::byte>> Bootstrap::broadcast(int root, std::span<const std::byte> bytes, base::Time deadline) {
  return client_->calls().broadcast(root, bytes, deadline);
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
bool Bootstrap::all_know_failure() const {
  return client_->all_know_failure();
}
bool Bootstrap::hears() const {
  return client_->hears();
}
std::optional<FailureReport> Bootstrap::wait_for_failure(base::Time deadline) const {
  return client_->wait_for_failure(deadline);
}

void Bootstrap::post_abort(std::string_view text) {
  client_->post_abort(text);
}

Result<std::vector<Answer>> Bootstrap::query(std::span<const std::byte> question, base::Time deadline) {
  TUTTI_ASSIGN(const Bytes packed,
               client_->exchange({.kind = Kind::kQuery}, Bytes(question.begin(), question.end()), deadline));
  return decode_answers(packed);
}

void Bootstrap::ask(std::span<const std::byte> question, base::Time deadline, Answered done) {
  client_->ask(Bytes(question.begin(), question.end()), deadline, std::move(done));
}

void Bootstrap::announce(const Ending& ending) {
  client_->announce(ending);
}

void Bootstrap::leave() {
  client_->leave();
}

}  // namespace tutti::bootstrap
