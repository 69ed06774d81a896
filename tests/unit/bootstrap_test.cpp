// SPDX-License-Identifier: Apache-2.0
// Ranks that meet, exchange and leave, with all kinds of strangers.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <thread>

#include "bootstrap/agreement.h"
#include "bootstrap/hub.h"
#include "tutti/sdk/descriptor_limit.h"
#include "unit/bootstrap_group.h"

namespace tutti::bootstrap {
namespace {

/// Bytes that differ by rank and call, in length too.
Bytes pattern(int rank, int call) {
  std::minstd_rand random(static_cast<unsigned>(1000 * call + rank + 1));
  Bytes bytes(random() % 300);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class Flow : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Flow, testing::Values(1, 2, 3, 8, 64, 256));

TEST_P(Flow, GathersBroadcastsAndMeets) {
  const int count = GetParam();
  const Group group = make_group(count);
  constexpr int kCalls = 4;
  std::atomic<int> arrived = 0;
  in_ranks(count, [&](int rank) {
    Bootstrap& mine = *group[static_cast<size_t>(rank)];
    EXPECT_EQ(mine.rank(), rank);
    EXPECT_EQ(mine.size(), count);
    for (int call = 0; call < kCalls; ++call) {
      const auto gathered = mine.all_gather(pattern(rank, call), soon());
      ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
      ASSERT_EQ(gathered.value().size(), static_cast<size_t>(count));
      for (int other = 0; other < count; ++other)
        EXPECT_TRUE(std::ranges::equal(gathered.value()[static_cast<size_t>(other)], pattern(other, call)));

      const int root = call * 37 % count;
      const auto sent = mine.broadcast(root, pattern(rank, 100 + call), soon());
      ASSERT_TRUE(sent.ok()) << sent.status().to_string();
      EXPECT_EQ(sent.value(), pattern(root, 100 + call));

      ++arrived;
      ASSERT_TRUE(mine.barrier(soon()).ok());
      EXPECT_GE(arrived, (call + 1) * count);
    }
  });
}

TEST(Bootstrap, CarriesMegabytes) {
  const Group group = make_group(3);
  in_ranks(3, [&](int rank) {
    const Bytes mine(static_cast<size_t>(3'000'000 + rank), static_cast<std::byte>(rank + 1));
    const auto gathered = group[static_cast<size_t>(rank)]->all_gather(mine, soon());
    ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
    for (size_t other = 0; other < 3; ++other)
      EXPECT_TRUE(
          std::ranges::equal(gathered.value()[other], Bytes(3'000'000 + other, static_cast<std::byte>(other + 1))));
  });
}

TEST(Bootstrap, RefusesMoreThanItCarries) {
  const Group group = make_group(2);
  const Bytes half(Bootstrap::kMaxBytes / 2);
  in_ranks(2, [&](int rank) {
    const auto gathered = group[static_cast<size_t>(rank)]->all_gather(half, soon());
    EXPECT_EQ(gathered.status().code(), Code::kInvalidArgument) << gathered.status().to_string();
  });
}

/// A call that one rank refuses is no call: this rank repeats it with arguments that are right.
TEST(Bootstrap, GoesOnAfterACallThatOneRankRefuses) {
  const Group group = make_group(2);
  const Bytes too_long(Bootstrap::kMaxBytes + 1);
  in_ranks(2, [&](int rank) {
    Bootstrap& own = *group[static_cast<size_t>(rank)];
    if (rank == 0) {
      EXPECT_EQ(own.all_gather(too_long, soon()).status().code(), Code::kInvalidArgument);
    }
    const auto gathered = own.all_gather(to_bytes(rank == 0 ? "a" : "b"), soon());
    EXPECT_TRUE(gathered.ok()) << gathered.status().to_string();
    if (rank == 0) {
      EXPECT_EQ(own.broadcast(0, too_long, soon()).status().code(), Code::kInvalidArgument);
    }
    const auto told = own.broadcast(0, rank == 0 ? to_bytes("c") : Bytes(), soon());
    ASSERT_TRUE(told.ok()) << told.status().to_string();
    EXPECT_EQ(*told, to_bytes("c"));
  });
}

TEST(Bootstrap, ManyGroupsAtOnce) {
  constexpr int kGroups = 8;
  in_ranks(kGroups, [](int) {
    const Group group = make_group(3);
    in_ranks(3, [&](int rank) { EXPECT_TRUE(group[static_cast<size_t>(rank)]->barrier(soon()).ok()); });
  });
}

TEST(Bootstrap, SplitsThroughTheParent) {
  const Group parents = make_group(4);
  in_ranks(4, [&](int rank) {
    Bytes mine;
    if (rank < 2) {  // the first of each half makes the id of its half
      const UniqueId id = make_id();
      const auto bytes = std::as_bytes(std::span(&id, 1));
      mine.assign(bytes.begin(), bytes.end());
    }
    const auto ids = parents[static_cast<size_t>(rank)]->all_gather(mine, soon());
    ASSERT_TRUE(ids.ok());
    UniqueId id;
    std::memcpy(static_cast<void*>(&id), ids.value()[static_cast<size_t>(rank % 2)].data(), sizeof id);
    const auto half = Bootstrap::join(id, rank / 2, 2, soon());
    ASSERT_TRUE(half.ok()) << half.status().to_string();
    EXPECT_TRUE(half.value()->barrier(soon()).ok());
  });
}

// Strangers.

/// The hello of a rank without a proof.
Hello hello_without_proof(const UniqueId& id, int rank, int count) {
  Hello hello = hello_to(id, rank, count);
  hello.proof.fill(std::byte{1});
  return hello;
}

TEST(Bootstrap, StrangersDisturbNobody) {
  constexpr int kRanks = 8;
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const UniqueId id = make_id();
  std::vector<Stranger> half_open;
  const auto disturb = [&] {
    const Hello hello = hello_without_proof(id, 0, kRanks);
    const auto hello_bytes = std::as_bytes(std::span(&hello, 1));
    const Header header = {.kind = Kind::kHello};
    const Stranger port_scan(id);
    const Stranger browser(id);
    browser.say(std::as_bytes(std::span(std::string_view("GET / HTTP/1.1\r\n\r\n"))));
    const Stranger wrong_proof(id);
    wrong_proof.say(header, hello_bytes);
    const Stranger short_hello(id);
    short_hello.say(header, hello_bytes.first(random() % hello_bytes.size()));
    const Stranger other_kind(id);
    other_kind.say({.kind = Kind::kCall, .code = 1}, {});
    const Stranger noise(id);
    Bytes garbage(random() % 200);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    noise.say(garbage);
    half_open.emplace_back(id);
    half_open.emplace_back(id).say(hello_bytes.first(7));
  };
  for (int i = 0; i < 20; ++i) disturb();
  std::atomic<bool> done = false;
  std::thread strangers([&] {
    while (!done) disturb();
  });
  const Group group = make_group(id, kRanks);
  in_ranks(kRanks, [&](int rank) {
    for (int call = 0; call < 20; ++call) EXPECT_TRUE(group[static_cast<size_t>(rank)]->barrier(soon()).ok());
  });
  done = true;
  strangers.join();
  for (const auto& member : group) EXPECT_FALSE(member->failure());
}

TEST(Bootstrap, FuzzedHellosNeverPass) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const UniqueId id = make_id();
  for (int i = 0; i < 300; ++i) {
    Hello hello = hello_without_proof(id, 0, 2);
    Bytes bytes(sizeof(Header) + sizeof hello);
    const Header header = {.payload_bytes = sizeof hello, .kind = Kind::kHello};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &hello, sizeof hello);
    for (unsigned flips = random() % 8; flips > 0; --flips)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    Stranger(id).say(std::span(bytes).first(random() % (bytes.size() + 1)));
  }
  make_group(id, 2);
}

TEST(Bootstrap, DropsTheSlow) {
  const auto poller = Poller::shared();
  ASSERT_TRUE(poller.ok());
  auto listener = base::listen_on(base::SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(listener.ok());
  const Endpoint endpoint{base::local_address(*listener), {}};
  poller.value()->run([&] {
    auto acceptor = std::make_shared<Acceptor>(*poller.value(), *std::move(listener), base::Milliseconds(500));
    const auto hub = std::make_shared<Hub>(*poller.value(), std::move(acceptor), endpoint.secret);
    EXPECT_TRUE(hub->open().ok());
    poller.value()->own(hub);
  });
  const UniqueId id = to_unique_id(endpoint);
  const Stranger silent(id);
  const Stranger slow(id);
  slow.say(std::as_bytes(std::span("ab", 2)));
  EXPECT_TRUE(silent.hears_end());
  EXPECT_TRUE(slow.hears_end());
  make_group(id, 2);
}

/// One guest more than a acceptor has room for.
TEST(Bootstrap, AFullAcceptorDropsItsOldestGuest) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 3 * Acceptor::kMaxGuests) GTEST_SKIP() << "needs more descriptors than the hard limit allows";
  sdk::raise_descriptor_limit();
  const auto poller = Poller::shared();
  ASSERT_TRUE(poller.ok());
  auto listener = base::listen_on(base::SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(listener.ok());
  const Endpoint endpoint{base::local_address(*listener), {}};
  poller.value()->run([&] {
    auto acceptor = std::make_shared<Acceptor>(*poller.value(), *std::move(listener), base::Milliseconds(60000));
    const auto hub = std::make_shared<Hub>(*poller.value(), std::move(acceptor), endpoint.secret);
    EXPECT_TRUE(hub->open().ok());
    poller.value()->own(hub);
  });
  const UniqueId id = to_unique_id(endpoint);
  std::deque<Stranger> guests;
  for (size_t i = 0; i <= Acceptor::kMaxGuests; ++i) {
    guests.emplace_back(id);
    ASSERT_EQ(guests.back().hear().header.kind, Kind::kChallenge) << "guest " << i;
  }
  EXPECT_TRUE(guests.front().hears_end());
  guests.clear();
  make_group(id, 2);
}

/// While no rank is awaited, guests may hold few descriptors of the job.
TEST(Bootstrap, AnAcceptorAtRestHasRoomForFewGuests) {
  const auto poller = Poller::shared();
  ASSERT_TRUE(poller.ok());
  auto listener = base::listen_on(base::SocketAddress::parse("127.0.0.1:0").value());
  ASSERT_TRUE(listener.ok());
  const Endpoint endpoint{base::local_address(*listener), {}};
  std::shared_ptr<Acceptor> acceptor;
  poller.value()->run([&] {
    acceptor = std::make_shared<Acceptor>(*poller.value(), *std::move(listener), base::Milliseconds(600000));
    const auto tag = acceptor->open_for(endpoint.secret, [](const auto&...) { return Status(); });
    ASSERT_TRUE(tag.ok());
    acceptor->expect_few_for(*tag);
  });
  std::deque<Stranger> guests;
  for (size_t i = 0; i <= Acceptor::kMaxGuestsAtRest; ++i) {
    guests.emplace_back(to_unique_id(endpoint));
    ASSERT_EQ(guests.back().hear().header.kind, Kind::kChallenge) << "guest " << i;
  }
  EXPECT_TRUE(guests.front().hears_end());
  poller.value()->run([&] { acceptor.reset(); });
}

TEST(Bootstrap, WrongSecretIsTurnedAway) {
  const UniqueId id = make_id();
  Endpoint endpoint = endpoint_of(id).value();
  endpoint.secret[0] ^= std::byte{1};
  const auto intruder = Bootstrap::join(to_unique_id(endpoint), 0, 2, soon());
  EXPECT_EQ(intruder.status().code(), Code::kRemote);
  EXPECT_NE(intruder.status().text().find("secret"), std::string_view::npos) << intruder.status().to_string();
  make_group(id, 2);
}

// Agreement.

TEST(Bootstrap, AgreesOnEqualIdentities) {
  const Group group = make_group(3);
  in_ranks(3, [&](int rank) {
    Identity identity = {.version = "0.1.0", .plugins = {"net.socket 0.1.0, ABI 1.0"}, .config = {"a=1", "b=2"}};
    if (rank == 1) std::swap(identity.config[0], identity.config[1]);
    const Status status = agree(*group[static_cast<size_t>(rank)], identity, soon());
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

TEST(Bootstrap, NamesWhatRanksDisagreeOn) {
  const Group group = make_group(8);
  in_ranks(8, [&](int rank) {
    Identity identity = {.version = "0.1.0", .plugins = {"algo.ring 0.1.0, ABI 0.1"}, .config = {"shm.slots=8"}};
    if (rank == 3) identity.config = {"shm.slots=16"};
    if (rank < 4) identity.plugins.emplace_back("net.socket 0.1.0, ABI 1.0");
    const Status status = agree(*group[static_cast<size_t>(rank)], identity, soon());
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_EQ(status.text(),
              "ranks disagree: config key 'shm.slots' is 8 on ranks 0-2,4-7 and 16 on rank 3; "
              "plugin net.socket is 0.1.0, ABI 1.0 on ranks 0-3 and missing on ranks 4-7");
  });
}

TEST(Bootstrap, NamesWhatRanksDecideDifferently) {
  const Group group = make_group(3);
  in_ranks(3, [&](int rank) {
    Identity identity = {.version = "0.1.0", .plugins = {"algo.ring 0.1.0, ABI 0.1"}, .config = {"shm.slots=8"}};
    identity.decisions = {std::string("all_reduce of blocks of 8 bytes=") + (rank == 1 ? "ring × ll" : "direct × ll")};
    const Status status = agree(*group[static_cast<size_t>(rank)], identity, soon());
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_EQ(
        status.text(),
        "ranks disagree: what runs 'all_reduce of blocks of 8 bytes' is direct × ll on ranks 0,2 and ring × ll on "
        "rank 1");
  });
}

TEST(Bootstrap, NamesDifferentVersionsOfTheLibrary) {
  const Group group = make_group(2);
  in_ranks(2, [&](int rank) {
    const Identity identity = {.version = rank == 0 ? "0.1.0" : "0.2.0", .plugins = {}, .config = {}};
    const Status status = agree(*group[static_cast<size_t>(rank)], identity, soon());
    EXPECT_EQ(status.text(), "ranks disagree: the version of Tutti is 0.1.0 on rank 0 and 0.2.0 on rank 1");
  });
}

}  // namespace
}  // namespace tutti::bootstrap
