// SPDX-License-Identifier: Apache-2.0
// How GPUs are joined, with memory of this process in place of memory of GPUs.
#include "transport/gpu_links.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <tuple>

#include "progress/bell.h"
#include "transport/message_hash.h"
#include "unit/bootstrap_group.h"
#include "unit/fake_network.h"
#include "unit/required.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;

constexpr uint32_t kRanks = 3;
constexpr uint64_t kStride = 16384;
// Ranks 0 and 1 meet in one kind of memory; rank 2 meets both in a second kind.
const std::vector<std::vector<uint32_t>> kHeaps = {{0, 0, 1}, {0, 0, 1}, {1, 1, 1}};
constexpr auto kCollective = Traffic::kCollective;
constexpr auto kMessages = Traffic::kPointToPoint;

/// Memory that all ranks of the process see at the same address.
class PlainHeap : public Heap {
 public:
  explicit PlainHeap(std::atomic<int>& opened, bool is_empty = false) : opened_(opened), is_empty_(is_empty) {}
  Result<Block> make(uint64_t bytes) override {
    if (is_empty_) return Status(Code::kDevice, "this memory is full");
    blocks_.emplace_back(bytes);
    return Block{blocks_.back().data(), Address::of(blocks_.back().data()), blocks_.back().data()};
  }
  Result<uint8_t*> open(const Address& address) override {
    ++opened_;
    return address.as<uint8_t*>();
  }
  Status write(uint8_t* at, const void* from, uint64_t bytes) override {
    EXPECT_TRUE(holds(at));
    std::memcpy(at, from, bytes);
    return {};
  }
  void close() override {}
  bool holds(const void* at) const {
    return std::ranges::any_of(blocks_, [&](const std::vector<uint8_t>& block) {
      return at >= block.data() && at < block.data() + block.size();
    });
  }

 private:
  std::vector<std::vector<uint8_t>> blocks_;
  std::atomic<int>& opened_;
  bool is_empty_;
};

class GpuLinksTest : public testing::Test {
 protected:
  void SetUp() override {
    group_ = bootstrap::make_group(kRanks);
    bootstrap::in_ranks(kRanks, [&](int rank) {
      GpuLinks::Options options;
      options.rank = static_cast<uint32_t>(rank);
      options.ranks = {0, 1, 2};
      options.protocols = {protocol(), {}, protocol()};
      options.timeout = timeout_;
      options.heaps = kHeaps[static_cast<size_t>(rank)];
      GpuLinks::Heaps heaps;
      for (auto& opened : opened_) heaps.push_back(std::make_unique<PlainHeap>(opened));
      auto links = GpuLinks::create(options, std::move(heaps), *group_[static_cast<size_t>(rank)], bootstrap::soon());
      ASSERT_TRUE(links.ok()) << links.status().text();
      links_[static_cast<size_t>(rank)] = *std::move(links);
    });
  }
  static GpuLinks::Protocol protocol() {
    GpuLinks::Protocol protocol;
    protocol.layout.slot_count = 4;
    protocol.layout.slot_bytes = protocol.layout.slot_stride = kStride;
    protocol.max_ctas = {12, 3};
    return protocol;
  }
  tutti_cuda_launch describe(uint32_t rank, uint32_t protocol, Traffic traffic) {
    tutti_cuda_launch launch{};
    links_[rank]->describe(protocol, 0, traffic, sequences_.data(), launch);
    return launch;
  }
  std::vector<tutti_cuda_link> links(uint32_t rank, uint32_t protocol, Traffic traffic) {
    tutti_cuda_launch launch{};
    return links_[rank]->describe(protocol, 0, traffic, sequences_.data(), launch);
  }

  std::chrono::nanoseconds timeout_ = std::chrono::seconds(60);
  std::array<std::atomic<int>, 2> opened_ = {};  ///< blocks of each kind
  bootstrap::Group group_;
  std::array<std::unique_ptr<GpuLinks>, kRanks> links_;
  std::array<tutti_cuda_sequence, 512> sequences_{};
};

class ImpatientGpuLinksTest : public GpuLinksTest {
 protected:
  ImpatientGpuLinksTest() { timeout_ = std::chrono::milliseconds(20); }
};

TEST_F(GpuLinksTest, EveryMailboxHasOneWriterAndOneReader) {
  std::map<tutti_cuda_mailbox*, int> read;
  std::map<tutti_cuda_mailbox*, int> written;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    for (const uint32_t protocol : {0u, 2u}) {
      for (const Traffic traffic : {kCollective, kMessages}) {
        const tutti_cuda_launch launch = describe(rank, protocol, traffic);
        EXPECT_EQ(launch.rank, rank);
        EXPECT_EQ(launch.rank_count, kRanks);
        EXPECT_EQ(launch.slot_count, 4u);
        for (uint32_t peer = 0; peer < kRanks; ++peer) {
          if (peer == rank) continue;
          const tutti_cuda_link link = links(rank, protocol, traffic)[peer];
          EXPECT_EQ(link.at, links(peer, protocol, traffic)[rank].of);
          for (uint32_t cta = 0; cta < (traffic == kCollective ? 12 : 3); ++cta) {
            ++read[link.of + cta];
            ++written[link.at + cta];
          }
        }
      }
    }
  }
  EXPECT_EQ(read, written);
  EXPECT_EQ(read.size(), kRanks * (kRanks - 1) * 2 * (12 + 3));
}

TEST_F(GpuLinksTest, LanesHaveSequencesOfTheirOwn) {
  const GpuLinks::Options options{0, {0, 1, 2}, {protocol(), {}, protocol()}, kHeaps[0], {}, {}, 1, timeout_};
  EXPECT_EQ(GpuLinks::sequence_count(options), 2 * (12 + 3 * 2 * kRanks));
  EXPECT_EQ(describe(0, 0, kMessages).sequences, describe(0, 0, kCollective).sequences + 12);
  EXPECT_EQ(describe(0, 2, kCollective).sequences, describe(0, 0, kMessages).sequences + 3 * 2 * kRanks);
}

TEST_F(GpuLinksTest, WhatIsOfferedIsReached) {
  const uint64_t before = links_[0]->bytes();
  std::vector<const uint8_t*> places;
  for (const uint32_t protocol : {0u, 2u}) {
    for (const Traffic traffic : {kCollective, kMessages}) {
      for (const uint32_t ctas : {1u, 2u, 3u}) {
        for (const uint32_t peer : {1u, 2u}) {
          const auto offered = links_[0]->offer({protocol, traffic, ctas, peer});
          const auto reached = links_[peer]->reach({protocol, traffic, ctas, 0});
          ASSERT_TRUE(offered.ok() && reached.ok());
          EXPECT_EQ(*offered, *reached);
          EXPECT_EQ(*offered, *links_[0]->offer({protocol, traffic, ctas, peer}));
          places.push_back(*offered);
        }
      }
    }
  }
  std::sort(places.begin(), places.end());
  for (size_t i = 1; i < places.size(); ++i) EXPECT_GE(places[i] - places[i - 1], static_cast<int>(4 * kStride));
  // The first block has room for all of them, and is opened once by each peer.
  EXPECT_EQ(links_[0]->bytes(), before);
  EXPECT_EQ(opened_[0], 2);
  EXPECT_EQ(opened_[1], 4);
}

TEST_F(GpuLinksTest, SlotsAreSharedByCallsOfAboutAsManyCtas) {
  EXPECT_EQ(*links_[0]->offer({0, kCollective, 5, 1}), *links_[0]->offer({0, kCollective, 8, 1}));
  EXPECT_NE(*links_[0]->offer({0, kCollective, 4, 1}), *links_[0]->offer({0, kCollective, 5, 1}));
  // 12 is all there can be.
  EXPECT_EQ(*links_[0]->offer({0, kCollective, 9, 1}), *links_[0]->offer({0, kCollective, 12, 1}));
}

TEST_F(GpuLinksTest, LargeSlotsGetMemoryOfTheirOwn) {
  const uint64_t before = links_[0]->bytes();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(links_[0]->offer({0, kCollective, 12, 1}).ok());
  EXPECT_EQ(links_[0]->bytes(), before);
  for (const uint32_t ctas : {1u, 2u, 4u, 8u, 12u}) {
    for (const uint32_t peer : {1u, 2u}) ASSERT_TRUE(links_[0]->offer({2, kCollective, ctas, peer}).ok());
  }
  EXPECT_EQ(links_[0]->bytes(), before + (2u << 20));
}

TEST_F(GpuLinksTest, ASenderWaitsForTheOffer) {
  const uint8_t* offered = nullptr;
  std::thread receiver([&] {
    // The other way first, so that this rank has met the sender within the same call.
    ASSERT_TRUE(links_[1]->reach({0, kMessages, 1, 0}).ok());
    offered = *links_[1]->offer({0, kMessages, 2, 0});
  });
  ASSERT_TRUE(links_[0]->offer({0, kMessages, 1, 1}).ok());
  const auto reached = links_[0]->reach({0, kMessages, 2, 1});
  receiver.join();
  ASSERT_TRUE(reached.ok());
  EXPECT_EQ(*reached, offered);
}

TEST_F(GpuLinksTest, AllRanksConnectAllToAllAtOnce) {
  bootstrap::in_ranks(kRanks, [&](int rank) {
    GpuLinks& links = *links_[static_cast<size_t>(rank)];
    const auto own = static_cast<uint32_t>(rank);
    for (uint32_t ctas = 1; ctas <= 12; ++ctas) {
      for (const uint32_t peer : {(own + 1) % kRanks, (own + 2) % kRanks}) {
        ASSERT_TRUE(links.offer({0, kCollective, ctas, peer}).ok());
      }
      for (const uint32_t peer : {(own + 1) % kRanks, (own + 2) % kRanks}) {
        ASSERT_TRUE(links.reach({0, kCollective, ctas, peer}).ok());
      }
    }
  });
}

TEST_F(GpuLinksTest, StopEndsTheWait) {
  std::thread other([&] { links_[0]->stop(); });
  const auto reached = links_[0]->reach({0, kCollective, 1, 1});
  other.join();
  EXPECT_EQ(reached.status().code(), Code::kAborted);
  EXPECT_EQ(links_[0]->reach({0, kCollective, 2, 1}).status().code(), Code::kAborted);
}

TEST_F(ImpatientGpuLinksTest, TheWaitHasADeadline) {
  const auto reached = links_[0]->reach({0, kCollective, 1, 2});
  EXPECT_EQ(reached.status().code(), Code::kTimeout);
  EXPECT_THAT(reached.status().text(), HasSubstr("rank 2 has not answered rank 0"));
  // A later offer is still heard.
  const auto offered = links_[2]->offer({0, kCollective, 1, 0});
  EXPECT_EQ(*links_[0]->reach({0, kCollective, 1, 2}), *offered);
}

/// Two ranks on two hosts, which networks with three devices each join.
class RelayedGpuLinksTest : public testing::Test {
 protected:
  static constexpr uint32_t kCtas = 5;
  static constexpr uint64_t kCtaBytes = 2 * (1024 + Relay::kRecordRoom);  ///< the slots of a CTA, without flags

  /// `path`: the network of the path between the ranks.
  /// `heap`: the kind of memory that the networks move.
  explicit RelayedGpuLinksTest(uint32_t networks = 1, Paths::value_type path = std::nullopt, bool check_data = false,
                               uint32_t heap = GpuLinks::kRelayed) {
    std::array<std::vector<std::vector<Net::Endpoint>>, 2> endpoints;  // by network, then by rank
    for (uint32_t rank = 0; rank < nets_.size(); ++rank) {
      progress::init_bell(bells_[rank]);
      const std::shared_ptr<progress::Engine> engine = test::required(progress::Engine::create({nullptr, 1}));
      for (uint32_t network = 0; network < networks; ++network) {
        nets_[rank].push_back(make_net(network, options(rank, networks, check_data, engine)));
        endpoints[network].push_back(nets_[rank].back()->endpoints());
      }
    }
    for (auto& of_rank : nets_) {
      for (uint32_t network = 0; network < networks; ++network) of_rank[network]->set_peers(endpoints[network]);
    }
    group_ = bootstrap::make_group(2);
    bootstrap::in_ranks(2, [&](int rank) {
      const auto self = static_cast<size_t>(rank);
      GpuLinks::Options options;
      options.rank = static_cast<uint32_t>(rank);
      options.ranks = {0, 1};
      options.protocols = {protocol(), with_flags(), without_scattered_slots()};
      options.heaps.assign(2, GpuLinks::kRelayed);
      options.heaps[self] = 0;
      for (const auto& net : nets_[self]) options.networks.push_back({net.get(), heap});
      options.paths.assign(2, path);
      options.call_networks = networks;
      options.timeout = std::chrono::seconds(60);
      GpuLinks::Heaps heaps;
      for (uint32_t kind = 0; kind < GpuLinks::kMaxHeaps; ++kind) heaps.push_back(std::make_shared<PlainHeap>(opened_));
      if (rank == 0) own_ = std::static_pointer_cast<PlainHeap>(heaps[heap]);
      links_[self] = test::required(GpuLinks::create(options, std::move(heaps), *group_[self], bootstrap::soon()));
    });
  }
  /// Both engines end first: a relay that still connects would reach for the listener of the peer.
  ~RelayedGpuLinksTest() override {
    for (auto& of_rank : nets_) {
      for (auto& net : of_rank) net->close();
    }
  }
  Net::Options options(uint32_t rank, uint32_t networks, bool check_data, std::shared_ptr<progress::Engine> engine) {
    Net::Options options;
    options.ops = test::FakeNetwork::ops();
    options.name = "fake";
    options.rank = rank;
    options.keys = {kCtas * networks, {protocol().layout, with_flags().layout, protocol().layout}};
    options.bell = &bells_[rank];
    options.check_data = check_data;
    options.engine = std::move(engine);
    return options;
  }
  std::unique_ptr<Net> make_net(uint32_t network, Net::Options options) {
    test::FakeNetwork& fake = fakes_[network];
    fake.set_devices(3);
    options.plugin = &fake;
    options.last_failure = [&fake] { return fake.take_failure(); };
    return test::required(Net::create(std::move(options)));
  }
  static GpuLinks::Protocol protocol() {
    GpuLinks::Protocol protocol;
    protocol.layout.slot_count = 2;
    protocol.layout.slot_bytes = 1024;
    protocol.layout.slot_stride = 1024 + Relay::kRecordRoom;
    protocol.max_ctas = {kCtas, 2};
    protocol.scatters = true;
    return protocol;
  }
  static GpuLinks::Protocol without_scattered_slots() {
    GpuLinks::Protocol protocol = RelayedGpuLinksTest::protocol();
    protocol.scatters = false;
    return protocol;
  }
  static GpuLinks::Protocol with_flags() {
    GpuLinks::Protocol protocol = RelayedGpuLinksTest::protocol();
    protocol.layout.slot_stride = 2048;
    protocol.has_flags = true;
    return protocol;
  }
  using Connections = std::vector<std::vector<int>>;
  /// Connections of a network by the devices of rank 0, then by the devices of rank 1, once there are so many.
  Connections connections(uint32_t count, uint32_t network = 0) {
    Connections made;
    const auto all = [&] {
      int sum = 0;
      made.assign(3, std::vector<int>(3));
      for (uint32_t from = 0; from < 3; ++from) {
        for (uint32_t to = 0; to < 3; ++to) sum += made[from][to] = fakes_[network].connections(from, to);
      }
      return sum == static_cast<int>(count);
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!all() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return made;
  }
  /// Puts two words of message 0 into a slot of a CTA of rank 0, with flags, for calls over a network. Returns the
  /// words that arrive in the slot of the same CTA of rank 1.
  std::array<uint32_t, 2> exchange(uint32_t cta, std::array<uint32_t, 2> words, uint32_t network = 0) {
    uint8_t* const to = test::required(links_[0]->reach({1, kCollective, kCtas, 1, {}, network}));
    const uint8_t* const from = test::required(links_[1]->offer({1, kCollective, kCtas, 0, {}, network}));
    const uint64_t slots = cta * with_flags().layout.slot_count * with_flags().layout.slot_stride;
    constexpr uint64_t kFlag = uint64_t{1} << 32;  // of message 0
    const auto word = [](const uint8_t* slot, uint32_t index) {
      return std::atomic_ref(reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(slot))[index]);
    };
    word(to + slots, 0).store(kFlag | words[0]);
    word(to + slots, 1).store(kFlag | words[1]);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (word(from + slots, 1).load() != (kFlag | words[1]) && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return {static_cast<uint32_t>(word(from + slots, 0).load()), static_cast<uint32_t>(word(from + slots, 1).load())};
  }

  /// Sends a word as message 0 of a CTA, with signals, in a call over a network. Returns the word that arrives at the
  /// same CTA of the peer.
  uint64_t send(uint32_t cta, uint64_t word, uint32_t network, uint32_t sender = 0) {
    const uint32_t receiver = 1 - sender;
    uint8_t* const to = slot_to(sender, cta, {0, kCollective, kCtas, receiver, {}, network});
    const uint8_t* const from = slot_from(receiver, cta, {0, kCollective, kCtas, sender, {}, network});
    tutti_cuda_launch launch{};
    const tutti_cuda_link out = links_[sender]->describe(0, network, kCollective, nullptr, launch)[receiver];
    const tutti_cuda_link in = links_[receiver]->describe(0, network, kCollective, nullptr, launch)[sender];
    const tutti_slot_layout layout = protocol().layout;
    std::memcpy(to, &word, sizeof word);
    std::atomic_ref(out.lengths[cta * layout.slot_count]).store(sizeof word << 32);
    std::atomic_ref(out.at[cta].tail).store(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (std::atomic_ref(in.of[cta].tail).load() != 1 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    std::memcpy(&word, from, sizeof word);
    return word;
  }
  /// The first slot of a CTA, as a kernel of a rank finds it.
  uint8_t* slot_to(uint32_t rank, uint32_t cta, const GpuKey& key) {
    uint8_t* const to = test::required(links_[rank]->reach(key));
    const tutti_cuda_slots* const scattered = links_[rank]->scattered(key);
    return scattered != nullptr ? scattered[cta].to : to + cta * kCtaBytes;
  }
  const uint8_t* slot_from(uint32_t rank, uint32_t cta, const GpuKey& key) {
    const uint8_t* const from = test::required(links_[rank]->offer(key));
    const tutti_cuda_slots* const scattered = links_[rank]->scattered(key);
    return scattered != nullptr ? scattered[cta].from : from + cta * kCtaBytes;
  }

  std::atomic<int> opened_{0};
  std::shared_ptr<PlainHeap> own_;  ///< memory of rank 0 that the networks move
  std::array<test::FakeNetwork, 2> fakes_;
  std::array<tutti_bell, 2> bells_{};
  bootstrap::Group group_;
  std::array<std::unique_ptr<GpuLinks>, 2> links_;
  std::array<std::vector<std::unique_ptr<Net>>, 2> nets_;  // by rank; their engines end before the memory of the links
};

using Words = std::array<uint32_t, 2>;
const std::array<Ports, 3> kPorts = {Ports{0, 2}, Ports{1, 1}, Ports{2, 1}};

TEST_F(RelayedGpuLinksTest, EachCtaUsesThePortsOfItsChannel) {
  EXPECT_TRUE(links_[0]->relayed(1));
  // A call of few CTAs makes the connections of all CTAs.
  ASSERT_TRUE(links_[0]->offer({0, kCollective, 1, 1, kPorts}).ok());
  EXPECT_EQ(connections(kCtas), (Connections{{0, 0, 2}, {0, 2, 0}, {0, 1, 0}}));
}

/// A store of a line is the only thing that a GPU does.
TEST_F(RelayedGpuLinksTest, FlagsInTheDataAreSeen) {
  EXPECT_EQ(exchange(3, {7, 8}), (Words{7, 8}));
}

TEST_F(RelayedGpuLinksTest, WithoutPortsTheFirstDevicesAreUsed) {
  ASSERT_TRUE(links_[0]->offer({0, kMessages, 1, 1}).ok());
  EXPECT_EQ(connections(2), (Connections{{2, 0, 0}, {0, 0, 0}, {0, 0, 0}}));
}

class TwoNetworksGpuLinksTest : public RelayedGpuLinksTest {
 protected:
  explicit TwoNetworksGpuLinksTest(Paths::value_type path = std::nullopt) : RelayedGpuLinksTest(2, path) {}
};

TEST_F(TwoNetworksGpuLinksTest, ACallUsesItsNetwork) {
  ASSERT_TRUE(links_[0]->offer({0, kCollective, 1, 1, {}, 1}).ok());
  EXPECT_EQ(connections(kCtas, 1)[0][0], static_cast<int>(kCtas));
  ASSERT_TRUE(links_[0]->offer({0, kCollective, 1, 1, kPorts, 0}).ok());
  EXPECT_EQ(connections(kCtas, 0), (Connections{{0, 0, 2}, {0, 2, 0}, {0, 1, 0}}));
  EXPECT_EQ(connections(kCtas, 1)[0][0], static_cast<int>(kCtas)) << "no connection was added";
}

TEST_F(TwoNetworksGpuLinksTest, TheCallsOfEachNetworkHaveAnOrderOfTheirOwn) {
  std::set<const void*> mailboxes, lengths, sequences, slots;
  for (const uint32_t network : {0u, 1u}) {
    for (const uint32_t protocol : {0u, 1u}) {
      for (const Traffic traffic : {kCollective, kMessages}) {
        tutti_cuda_sequence* const none = nullptr;
        tutti_cuda_launch launch{};
        const tutti_cuda_link link = links_[0]->describe(protocol, network, traffic, none, launch)[1];
        mailboxes.insert({link.of, link.at});
        lengths.insert(link.lengths);
        sequences.insert(launch.sequences);
        const GpuKey key{protocol, traffic, 1, 1, {}, network};
        slots.insert({test::required(links_[0]->offer(key)), test::required(links_[0]->reach(key))});
      }
    }
  }
  EXPECT_EQ(mailboxes.size(), 16u);
  EXPECT_EQ(lengths.size(), 8u);
  EXPECT_EQ(sequences.size(), 8u);
  EXPECT_EQ(slots.size(), 16u);
}

/// The ranks share a rack whose network is the second.
class GpuLinksInARackTest : public TwoNetworksGpuLinksTest {
 protected:
  GpuLinksInARackTest() : TwoNetworksGpuLinksTest(1) {}
};

TEST_F(GpuLinksInARackTest, ThePathDecides) {
  // The ports of the channel belong to the first network.
  ASSERT_TRUE(links_[0]->offer({0, kCollective, 1, 1, kPorts, 0}).ok());
  EXPECT_EQ(connections(kCtas, 1)[0][0], static_cast<int>(kCtas));
  ASSERT_TRUE(links_[0]->offer({0, kCollective, 1, 1, kPorts, 1}).ok());
  EXPECT_EQ(connections(2 * kCtas, 1), (Connections{{static_cast<int>(kCtas), 0, 2}, {0, 2, 0}, {0, 1, 0}}));
  EXPECT_EQ(connections(0, 0), (Connections(3, {0, 0, 0})));
}

/// With a network of the path, or without. With check.data, or without: data then goes through slots of the networks.
class MessagesOfTwoNetworksTest : public testing::WithParamInterface<std::tuple<Paths::value_type, bool>>,
                                  public RelayedGpuLinksTest {
 protected:
  MessagesOfTwoNetworksTest() : RelayedGpuLinksTest(2, std::get<0>(GetParam()), std::get<1>(GetParam())) {}
};

INSTANTIATE_TEST_SUITE_P(All, MessagesOfTwoNetworksTest,
                         testing::Combine(testing::Values(Paths::value_type(), Paths::value_type(1)),
                                          testing::Values(false, can_hash_messages())));

/// Rank 0 has made the connections of all calls before rank 1 makes the first.
TEST_P(MessagesOfTwoNetworksTest, Arrive) {
  for (const uint32_t rank : {0u, 1u}) {
    for (const uint32_t protocol : {0u, 1u}) {
      ASSERT_TRUE(links_[rank]->offer({protocol, kCollective, kCtas, 1 - rank, {}, rank}).ok());
      ASSERT_TRUE(links_[rank]->offer({protocol, kCollective, kCtas, 1 - rank, {}, 1 - rank}).ok());
    }
  }
  EXPECT_EQ(exchange(3, {7, 8}, 0), (Words{7, 8}));
  EXPECT_EQ(exchange(3, {9, 10}, 1), (Words{9, 10}));
  EXPECT_EQ(send(3, 11, 0), 11u);
  EXPECT_EQ(send(3, 12, 1), 12u);
}

/// The network moves memory of GPUs. Second GPUs lend rank 0 memory for messages by the ports 1 and 2.
class LentGpuLinksTest : public RelayedGpuLinksTest {
 protected:
  explicit LentGpuLinksTest(uint32_t heap = GpuLinks::kDirect) : RelayedGpuLinksTest(1, std::nullopt, false, heap) {}
  /// `empty`: the port near whose GPU there is no memory; 0: none.
  void lend(uint32_t empty = 0, bool must = false) {
    for (const uint32_t port : {1u, 2u}) {
      lent_[port] = std::make_shared<PlainHeap>(opened_, port == empty);
      links_[0]->lend(port, lent_[port], must);
    }
  }
  /// The port near whose GPU a slot lies; 0: in memory of the own GPU.
  uint32_t port_near(const void* slot) const {
    for (const uint32_t port : {1u, 2u}) {
      if (lent_[port]->holds(slot)) return port;
    }
    EXPECT_TRUE(own_->holds(slot));
    return 0;
  }
  std::vector<uint32_t> ports_near(const GpuKey& key, bool sends) {
    std::vector<uint32_t> ports;
    for (uint32_t cta = 0; cta < kCtas; ++cta) {
      ports.push_back(port_near(sends ? slot_to(0, cta, key) : slot_from(0, cta, key)));
    }
    return ports;
  }

  std::array<std::shared_ptr<PlainHeap>, 3> lent_;
  /// CTA 0 sends by port 0 and receives by port 2, and so on.
  const std::array<Ports, 3> ports_ = {Ports{0, 2, 2}, Ports{1, 1, 1}, Ports{2, 1, 0}};
};

TEST_F(LentGpuLinksTest, SlotsLieNearTheirPorts) {
  lend();
  const GpuKey key{0, kCollective, kCtas, 1, ports_};
  EXPECT_THAT(ports_near(key, true), testing::ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(ports_near(key, false), testing::ElementsAre(2, 1, 0, 2, 1));
  EXPECT_TRUE(own_->holds(links_[0]->scattered(key)));
  std::vector<const uint8_t*> slots;
  for (uint32_t cta = 0; cta < kCtas; ++cta) slots.insert(slots.end(), {slot_to(0, cta, key), slot_from(0, cta, key)});
  std::ranges::sort(slots);
  for (size_t i = 1; i < slots.size(); ++i) EXPECT_GE(slots[i] - slots[i - 1], static_cast<int64_t>(kCtaBytes));
  EXPECT_EQ(links_[1]->scattered({0, kCollective, kCtas, 0}), nullptr) << "the peer does not notice";
}

TEST_F(LentGpuLinksTest, MessagesArrive) {
  lend();
  ASSERT_TRUE(links_[0]->offer({0, kCollective, kCtas, 1, ports_}).ok());
  ASSERT_TRUE(links_[1]->offer({0, kCollective, kCtas, 0}).ok());
  for (uint32_t cta = 0; cta < kCtas; ++cta) {
    EXPECT_EQ(send(cta, 100 + cta, 0), 100 + cta);
    EXPECT_EQ(send(cta, 200 + cta, 0, 1), 200 + cta);
  }
}

TEST_F(LentGpuLinksTest, ThePortOfTheNetworkCountsIfNoneIsNamed) {
  lent_[1] = lent_[2] = std::make_shared<PlainHeap>(opened_);
  links_[0]->lend(0, lent_[1]);
  const GpuKey key{0, kCollective, kCtas, 1};
  EXPECT_THAT(ports_near(key, true), testing::Each(1));
  EXPECT_THAT(ports_near(key, false), testing::Each(0)) << "the peer chooses the port, so it is not known";
}

TEST_F(LentGpuLinksTest, SlotsOfOneGpuLieTogether) {
  lent_[1] = lent_[2] = std::make_shared<PlainHeap>(opened_);
  for (const uint32_t port : {0u, 1u, 2u}) links_[0]->lend(port, lent_[1]);
  const GpuKey key{0, kCollective, kCtas, 1, ports_};
  EXPECT_THAT(ports_near(key, true), testing::Each(1));
  EXPECT_THAT(ports_near(key, false), testing::Each(1));
  EXPECT_EQ(links_[0]->scattered(key), nullptr);
}

TEST_F(LentGpuLinksTest, FullMemoryIsNotUsed) {
  lend(2);
  const GpuKey key{0, kCollective, kCtas, 1, ports_};
  EXPECT_THAT(ports_near(key, true), testing::ElementsAre(0, 1, 0, 0, 1)) << "the second GPU near port 1 has memory";
  EXPECT_THAT(ports_near(key, false), testing::ElementsAre(0, 1, 0, 0, 1));
}

TEST_F(LentGpuLinksTest, FullMemoryIsAnErrorWhereItMustBeUsed) {
  lend(2, true);
  const auto offered = links_[0]->offer({0, kCollective, kCtas, 1, ports_});
  EXPECT_EQ(offered.status().code(), Code::kDevice);
  EXPECT_THAT(offered.status().text(), HasSubstr("net.pxn is on: this memory is full"));
  EXPECT_EQ(connections(0), (Connections(3, {0, 0, 0}))) << "no relay is left";
}

TEST_F(LentGpuLinksTest, OtherProtocolsKeepTheirMemory) {
  lend();
  EXPECT_THAT(ports_near({2, kCollective, kCtas, 1, ports_}, true), testing::Each(0));
  const GpuKey flags{1, kCollective, kCtas, 1, ports_};
  uint8_t* const to = test::required(links_[0]->reach(flags));
  for (const uint32_t port : {1u, 2u}) EXPECT_FALSE(lent_[port]->holds(to));
  EXPECT_EQ(links_[0]->scattered(flags), nullptr);
}

/// The network moves memory of the host.
class LentBesideHostMemoryTest : public LentGpuLinksTest {
 protected:
  LentBesideHostMemoryTest() : LentGpuLinksTest(GpuLinks::kRelayed) {}
};

TEST_F(LentBesideHostMemoryTest, NothingIsLent) {
  lend();
  EXPECT_THAT(ports_near({0, kCollective, kCtas, 1, ports_}, true), testing::Each(0));
}

}  // namespace
}  // namespace tutti::transport
