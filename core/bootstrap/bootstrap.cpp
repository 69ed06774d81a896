// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/bootstrap.h"

#include <utility>

#include "base/fork.h"
#include "bootstrap/client.h"

namespace tutti::bootstrap {

static_assert(Bootstrap::kMaxBytes == kMaxPayloadBytes);

Bootstrap::Bootstrap(std::unique_ptr<Client> client) : client_(std::move(client)) {}
Bootstrap::~Bootstrap() {
  if (client_ != nullptr && client_->forked()) base::abandon(std::shared_ptr<Client>(std::move(client_)));
}

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(const UniqueId& id, int rank, int rank_count, base::Time deadline,
                                                   base::Milliseconds peer_loss, const Site& site) {
  TUTTI_ASSIGN(const Endpoint endpoint, endpoint_of(id));
  TUTTI_ASSIGN(auto poller, Poller::shared());
  auto client = std::make_unique<Client>(std::move(poller), Client::Options{rank, rank_count, peer_loss, site});
  if (const Status joined = client->join(endpoint, deadline); !joined.ok()) return joined;
  return std::unique_ptr<Bootstrap>(new Bootstrap(std::move(client)));
}

int Bootstrap::rank() const {
  return client_->rank();
}
int Bootstrap::size() const {
  return client_->size();
}

Result<Gathered> Bootstrap::all_gather(std::span<const std::byte> mine, base::Time deadline) {
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
