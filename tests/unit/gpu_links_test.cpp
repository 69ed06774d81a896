// SPDX-License-Identifier: Apache-2.0
// How GPUs are joined, with memory of this process in place of memory of GPUs.
#include "transport/gpu_links.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "progress/bell.h"
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
  explicit PlainHeap(std::atomic<int>& opened) : opened_(opened) {}
  Result<Block> make(uint64_t bytes) override {
    blocks_.emplace_back(bytes);
    return Block{blocks_.back().data(), Address::of(blocks_.back().data()), blocks_.back().data()};
  }
  Result<uint8_t*> open(const Address& address) override {
    ++opened_;
    return address.as<uint8_t*>();
  }
  void close() override {}

 private:
  std::vector<std::vector<uint8_t>> blocks_;
  std::atomic<int>& opened_;
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
    links_[rank]->describe(protocol, traffic, sequences_.data(), launch);
    return launch;
  }
  std::vector<tutti_cuda_link> links(uint32_t rank, uint32_t protocol, Traffic traffic) {
    tutti_cuda_launch launch{};
    return links_[rank]->describe(protocol, traffic, sequences_.data(), launch);
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
  const GpuLinks::Options options{0, {0, 1, 2}, {protocol(), {}, protocol()}, kHeaps[0], nullptr, false, timeout_};
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

/// Two ranks on two hosts, which a network with three devices joins.
class RelayedGpuLinksTest : public testing::Test {
 protected:
  static constexpr uint32_t kCtas = 5;

  RelayedGpuLinksTest() {
    fake_.set_devices(3);
    std::vector<std::vector<Net::Endpoint>> endpoints;
    for (uint32_t rank = 0; rank < nets_.size(); ++rank) {
      progress::init_bell(bells_[rank]);
      Net::Options options;
      options.ops = test::FakeNetwork::ops();
      options.plugin = &fake_;
      options.name = "fake";
      options.rank = rank;
      options.keys = {kCtas, {protocol().layout, with_flags().layout}};
      options.bell = &bells_[rank];
      options.last_failure = [this] { return fake_.take_failure(); };
      nets_[rank] = test::required(Net::create(std::move(options)));
      endpoints.push_back(nets_[rank]->endpoints());
    }
    for (auto& net : nets_) net->set_peers(endpoints);
    group_ = bootstrap::make_group(2);
    bootstrap::in_ranks(2, [&](int rank) {
      const auto self = static_cast<size_t>(rank);
      GpuLinks::Options options;
      options.rank = static_cast<uint32_t>(rank);
      options.ranks = {0, 1};
      options.protocols = {protocol(), with_flags()};
      options.heaps.assign(2, GpuLinks::kRelayed);
      options.heaps[self] = 0;
      options.net = nets_[self].get();
      options.timeout = std::chrono::seconds(60);
      GpuLinks::Heaps heaps;
      for (int kind = 0; kind < 3; ++kind) heaps.push_back(std::make_shared<PlainHeap>(opened_));
      links_[self] = test::required(GpuLinks::create(options, std::move(heaps), *group_[self], bootstrap::soon()));
    });
  }
  /// Both engines end first: a relay that still connects would reach for the listener of the peer.
  ~RelayedGpuLinksTest() override {
    for (auto& net : nets_) net->engine().stop();
  }
  static GpuLinks::Protocol protocol() {
    GpuLinks::Protocol protocol;
    protocol.layout.slot_count = 2;
    protocol.layout.slot_bytes = 1024;
    protocol.layout.slot_stride = 1024 + Relay::kRecordRoom;
    protocol.max_ctas = {kCtas, 2};
    return protocol;
  }
  static GpuLinks::Protocol with_flags() {
    GpuLinks::Protocol protocol = RelayedGpuLinksTest::protocol();
    protocol.layout.slot_stride = 2048;
    protocol.has_flags = true;
    return protocol;
  }
  /// Connections by the devices of rank 0, then by the devices of rank 1, once all CTAs have one.
  std::vector<std::vector<int>> connections(uint32_t count) {
    std::vector<std::vector<int>> made;
    const auto all = [&] {
      int sum = 0;
      made.assign(3, std::vector<int>(3));
      for (uint32_t from = 0; from < 3; ++from) {
        for (uint32_t to = 0; to < 3; ++to) sum += made[from][to] = fake_.connections(from, to);
      }
      return sum == static_cast<int>(count);
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!all() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return made;
  }

  std::atomic<int> opened_{0};
  test::FakeNetwork fake_;
  std::array<tutti_bell, 2> bells_{};
  bootstrap::Group group_;
  std::array<std::unique_ptr<GpuLinks>, 2> links_;
  std::array<std::unique_ptr<Net>, 2> nets_;  // their engines end before the memory of the links
};

TEST_F(RelayedGpuLinksTest, EachCtaUsesThePortsOfItsChannel) {
  EXPECT_TRUE(links_[0]->relayed(1));
  const std::array<Ports, 3> ports = {Ports{0, 2}, Ports{1, 1}, Ports{2, 1}};
  // A call of few CTAs makes the connections of all CTAs.
  ASSERT_TRUE(links_[0]->offer({0, kCollective, 1, 1, ports}).ok());
  EXPECT_EQ(connections(kCtas), (std::vector<std::vector<int>>{{0, 0, 2}, {0, 2, 0}, {0, 1, 0}}));
}

/// A store of a line is the only thing that a GPU does.
TEST_F(RelayedGpuLinksTest, FlagsInTheDataAreSeen) {
  constexpr uint32_t kCta = 3;
  const GpuKey key{1, kCollective, kCtas, 1};
  uint8_t* const to = test::required(links_[0]->reach(key));
  const uint8_t* const from = test::required(links_[1]->offer({1, kCollective, kCtas, 0}));
  const uint64_t slots = kCta * with_flags().layout.slot_count * with_flags().layout.slot_stride;
  constexpr uint64_t kFlag = uint64_t{1} << 32;  // of message 0
  const auto word = [](const uint8_t* slot, uint32_t index) {
    return std::atomic_ref(reinterpret_cast<uint64_t*>(const_cast<uint8_t*>(slot))[index]);
  };
  word(to + slots, 0).store(kFlag | 7);
  word(to + slots, 1).store(kFlag | 8);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (word(from + slots, 1).load() != (kFlag | 8) && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(word(from + slots, 0).load(), kFlag | 7);
  EXPECT_EQ(word(from + slots, 1).load(), kFlag | 8);
}

TEST_F(RelayedGpuLinksTest, WithoutPortsTheFirstDevicesAreUsed) {
  ASSERT_TRUE(links_[0]->offer({0, kMessages, 1, 1}).ok());
  EXPECT_EQ(connections(2), (std::vector<std::vector<int>>{{2, 0, 0}, {0, 0, 0}, {0, 0, 0}}));
}

}  // namespace
}  // namespace tutti::transport
