// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/branch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::bootstrap {
namespace {

/// The branches of this process that take children. Never destroyed: the poller's thread may outlive all statics.
std::map<Tag, std::weak_ptr<Branch>>& branches_here() {
  static auto& branches = *std::make_unique<std::map<Tag, std::weak_ptr<Branch>>>().release();
  return branches;
}

}  // namespace

Branch::Branch(Poller& poller, Options options, Events events)
    : poller_(poller), options_(std::move(options)), events_(std::move(events)) {}

Branch::~Branch() {
  close_room();
  if (parent_) parent_->close();
  for (const auto& [rank, link] : children_) link->close();
  for (const auto& [rank, branch] : children_here_)
    if (const auto child = branch.lock()) child->detach({});
}

Result<Secret> Branch::secret_of(const Secret& group, int rank) {
  TUTTI_ASSIGN(const sdk::Proof key, derive_key(group, fmt::format("branch of rank {}", rank)));
  Secret secret;
  std::copy_n(key.begin(), secret.size(), secret.begin());
  return secret;
}

Status Branch::open(std::shared_ptr<Acceptor> acceptor, const Secret& secret, base::Time deadline) {
  TUTTI_ASSIGN(tag_, acceptor->open_for(secret, [this](const auto& link, const Hello& hello, const Header&) {
    return admit(link, hello);
  }));
  acceptor_ = std::move(acceptor);
  branches_here()[tag_] = weak_from_this();
  closing_ = poller_.at(deadline, [this] { close_room(); });
  return {};
}

Status Branch::admit(const std::shared_ptr<Link>& link, const Hello& hello) {
  const std::vector<int>& children = options_.role.children;
  const bool expected = std::find(children.begin(), children.end(), hello.rank) != children.end();
  if (!expected || hello.rank_count != options_.rank_count)
    return {Code::kInvalidArgument, fmt::format("this parent does not expect rank {}", hello.rank)};
  auto& child = children_[hello.rank];
  if (child) child->close();  // a child whose first connection broke before the welcome comes again
  child = link;
  link->trust(0, base::Milliseconds(hello.peer_loss_ms));
  // A child says nothing, so any frame of it is nonsense.
  link->set_events({.received = [link = link.get()](const Frame&) { link->close(); }, .closed = [](const Loss&) {}});
  end_when_complete();
  return {};
}

/// Later, because the acceptor may be the caller.
void Branch::end_when_complete() {
  if (children_.size() + children_here_.size() < options_.role.children.size()) return;
  poller_.cancel(closing_);
  closing_ = poller_.at(base::Clock::now(), [this] { close_room(); });
}

void Branch::close_room() {
  poller_.cancel(closing_);
  if (!acceptor_) return;
  acceptor_->close_for(tag_);
  acceptor_.reset();
  branches_here().erase(tag_);
}

void Branch::attach(base::Fd socket) {
  attached_ = true;
  base::set_connection_options(socket, options_.peer_loss);
  parent_ = Link::open(
      poller_, std::move(socket), kMaxPayloadBytes,
      {.received = [this](Frame frame) { hear_parent(std::move(frame)); },
       .closed = [this](const Loss& loss) { detach(loss.kind == Loss::Kind::kEnded ? std::string() : loss.text); }});
}

bool Branch::attach_here(const Secret& secret) {
  const auto tag = tag_of(secret);
  const auto found = tag.ok() ? branches_here().find(*tag) : branches_here().end();
  if (found == branches_here().end()) return false;
  attached_ = true;
  parent_here_ = found->second;
  const auto parent = parent_here_.lock();
  parent->children_here_.emplace(options_.rank, weak_from_this());
  parent->end_when_complete();
  return true;
}

void Branch::detach(const std::string& why) {
  if (!std::exchange(attached_, false)) return;
  if (const auto here = parent_here_.lock()) here->children_here_.erase(options_.rank);
  if (parent_) parent_->close();
  events_.detached(why);
}

void Branch::hear_parent(Frame frame) {
  const bool is_result = frame.header.kind == Kind::kResult && frame.header.code == 0;
  if (is_result && frame.payload.size() >= kLeastBytesForTree) return events_.received(std::move(frame));
  detach(frame.header.kind == Kind::kReply ? to_text(frame.payload) : "it sent what no parent sends");
}

void Branch::pass_on(uint32_t call, const Bytes& result) {
  if (call <= passed_ || result.size() < kLeastBytesForTree) return;
  passed_ = call;
  for (const auto& [rank, branch] : children_here_) {
    if (const auto child = branch.lock())
      child->events_.received({.header = {.kind = Kind::kResult, .id = call}, .payload = result});
  }
  if (children_.empty()) return;
  const auto shared = std::make_shared<const Bytes>(result);
  for (const auto& [rank, link] : children_) link->send({.kind = Kind::kResult, .id = call}, shared);
}

void Branch::when_passed_on(const std::function<void()>& done) const {
  const auto left = std::make_shared<size_t>(children_.size() + 1);
  const auto count = [left, done] {
    if (--*left == 0) done();
  };
  for (const auto& [rank, link] : children_) link->when_sent(count);
  count();
}

}  // namespace tutti::bootstrap
