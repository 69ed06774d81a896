// SPDX-License-Identifier: Apache-2.0
#include "unit/relayed_links.h"

#include "progress/bell.h"
#include "unit/required.h"

namespace tutti::test {

using transport::LineRelay;
using transport::Net;
using transport::Traffic;

RelayedLinks::RelayedLinks(Options options)
    : options_(std::move(options)),
      link_bytes_(options_.layout.slot_count * options_.layout.slot_stride),
      slots_(size_t{options_.rank_count} * options_.rank_count),
      at_(slots_.size()),
      bells_(options_.rank_count) {
  tutti_cuda_mailbox mailbox{};
  mailbox.done = options_.first_number;
  std::vector<std::vector<Net::Endpoint>> endpoints;
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    for (uint32_t peer = 0; peer < options_.rank_count; ++peer) {
      if (!relayed(rank, peer)) continue;
      slots_[pair(rank, peer)].resize(options_.count * link_bytes_ / sizeof(uint64_t));
      at_[pair(rank, peer)].assign(options_.count, mailbox);
    }
    progress::init_bell(bells_[rank]);
    Net::Options net;
    net.ops = FakeNetwork::ops();
    net.plugin = &fake_;
    net.name = "fake";
    net.rank = rank;
    net.keys = {options_.count, {options_.layout}};
    net.bell = &bells_[rank];
    net.on_failure = options_.on_failure;
    net.last_failure = [this] { return fake_.take_failure(); };
    nets_.push_back(required(Net::create(std::move(net))));
    endpoints.push_back(nets_.back()->endpoints());
  }
  for (auto& net : nets_) net->set_peers(endpoints);
}

RelayedLinks::~RelayedLinks() {
  // All engines end first: a relay that still connects would reach for the listener of a peer.
  for (auto& net : nets_) net->engine().stop();
  nets_.clear();
}

void RelayedLinks::start(uint32_t rank, uint32_t peer, uint8_t* from, tutti_cuda_mailbox* of) {
  for (uint32_t index = 0; index < options_.count; ++index) {
    LineRelay::Options made;
    made.key = {peer, Traffic::kCollective, index, 0};
    made.layout = options_.layout;
    made.to = to(rank, peer) + index * link_bytes_;
    made.from = from + index * link_bytes_;
    made.at = at(rank, peer) + index;
    made.of = of + index;
    const transport::Key key = made.key;
    auto relay = std::make_shared<LineRelay>(*nets_[rank], std::move(made));
    nets_[rank]->expect(key, relay);
    nets_[rank]->engine().add(std::move(relay));
  }
}

}  // namespace tutti::test
