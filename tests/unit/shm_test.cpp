// SPDX-License-Identifier: Apache-2.0
// Ranks that attach to each other's shared memory, also as processes of their own.
#include "transport/shm.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "unit/required.h"

namespace tutti::transport {
namespace {

using test::required;
using testing::HasSubstr;

tutti_slot_layout small_slots() {
  tutti_slot_layout layout{};
  layout.slot_count = 4;
  layout.slot_bytes = layout.slot_stride = 256;
  return layout;
}

std::unique_ptr<Shm> make(uint32_t rank) {
  return required(Shm::create(rank, {0, 1}, {1, {small_slots()}}));
}

Shm::Peer peer_of(const Shm& shm) {
  return {shm.address(), reinterpret_cast<uint64_t>(shm.token_address())};
}

constexpr Key key_to(uint32_t peer) {
  return {peer, Traffic::kCollective, 0, 0};
}

/// Rank 1 in a process of its own, which lives as long as this object.
class OtherProcess {
 public:
  OtherProcess() {
    int pipe_ends[2];
    test::require(::pipe(pipe_ends) == 0, "pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      auto shm = make(1);
      Shm::Peer peer = peer_of(*shm);
      (void)!::write(pipe_ends[1], &peer, sizeof peer);
      for (;;) ::pause();
    }
    Shm::Peer peer{};
    test::require(::read(pipe_ends[0], &peer, sizeof peer) == sizeof peer, "read");
    peer_ = peer;
    ::close(pipe_ends[0]);
    ::close(pipe_ends[1]);
  }
  ~OtherProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OtherProcess(const OtherProcess&) = delete;
  OtherProcess& operator=(const OtherProcess&) = delete;
  const Shm::Peer& peer() const { return peer_; }

 private:
  pid_t pid_ = -1;
  Shm::Peer peer_{};
};

TEST(Shm, BothEndsOfAConnectionAreOnePlace) {
  const auto a = make(0);
  const auto b = make(1);
  const std::vector<Shm::Peer> peers = {peer_of(*a), peer_of(*b)};
  for (Shm* shm : {a.get(), b.get()}) ASSERT_TRUE(shm->attach(peers, Shm::SingleCopy::kAuto).ok());
  tutti_connection* const out = a->sender(key_to(1));
  tutti_connection* const in = b->receiver(key_to(0));
  EXPECT_EQ(out->peer, 1u);
  EXPECT_EQ(in->peer, 0u);
  out->slots[3] = 42;
  *out->tail = 7;
  EXPECT_EQ(in->slots[3], 42);
  EXPECT_EQ(*in->tail, 7u);
  EXPECT_EQ(out->peer_bell, &b->bell());
  EXPECT_EQ(in->peer_bell, &a->bell());
  EXPECT_EQ(out, a->sender(key_to(1))) << "made once";
  EXPECT_NE(b->sender(key_to(0))->slots, in->slots) << "the other direction is another place";
  EXPECT_EQ(out->flags, TUTTI_CONNECTION_SHARED_SPACE);
  EXPECT_EQ(a->single_copy(), "same process");
  EXPECT_TRUE(a->is_local(1));
  EXPECT_FALSE(a->is_local(2));
}

TEST(Shm, EachSenderHasAPlaceOfItsOwn) {
  std::vector<std::unique_ptr<Shm>> ranks;
  std::vector<Shm::Peer> peers;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    ranks.push_back(required(Shm::create(rank, {0, 1, 2}, {1, {small_slots()}})));
    peers.push_back(peer_of(*ranks.back()));
  }
  for (const auto& rank : ranks) ASSERT_TRUE(rank->attach(peers, Shm::SingleCopy::kAuto).ok());
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) {
      if (from != to) ranks[from]->sender(key_to(to))->slots[0] = static_cast<uint8_t>(10 * from + to);
    }
  }
  for (uint32_t from = 0; from < 3; ++from) {
    for (uint32_t to = 0; to < 3; ++to) {
      if (from != to) {
        EXPECT_EQ(ranks[to]->receiver(key_to(from))->slots[0], 10 * from + to);
      }
    }
  }
}

TEST(Shm, SingleCopyMayBeOff) {
  const auto a = make(0);
  const auto b = make(1);
  ASSERT_TRUE(a->attach({peer_of(*a), peer_of(*b)}, Shm::SingleCopy::kOff).ok());
  EXPECT_EQ(a->sender(key_to(1))->flags, 0u);
  EXPECT_EQ(a->single_copy(), "off");
}

TEST(Shm, ReadsOtherProcessesWhereTheKernelAllowsIt) {
  const OtherProcess other;
  const auto mine = make(0);
  const Status attached = mine->attach({peer_of(*mine), other.peer()}, Shm::SingleCopy::kOn);
  if (!attached.ok()) {
    EXPECT_THAT(std::string(attached.text()), HasSubstr("shm.single_copy is on, but the kernel does not let"));
    GTEST_SKIP() << "this kernel lets no process read another";
  }
  EXPECT_EQ(mine->single_copy(), "process_vm_readv");
  EXPECT_EQ(mine->sender(key_to(1))->flags, TUTTI_CONNECTION_REMOTE_READ);
  EXPECT_EQ(mine->sender(key_to(1))->peer_process, other.peer().address.process);
}

/// The memory must have the announced token: otherwise the addresses have a different meaning in that process.
TEST(Shm, RefusesSingleCopiesWhereTheTokenIsNotFound) {
  const OtherProcess other;
  const auto mine = make(0);
  Shm::Peer moved = other.peer();
  moved.token_address += sizeof(uint64_t);  // there are zeros
  const Status attached = mine->attach({peer_of(*mine), moved}, Shm::SingleCopy::kOn);
  EXPECT_EQ(attached.code(), Code::kSystem);
  EXPECT_THAT(std::string(attached.text()), HasSubstr("shm.single_copy is on, but the kernel does not let"));
  EXPECT_TRUE(make(0)->attach({peer_of(*mine), moved}, Shm::SingleCopy::kAuto).ok())
      << "kAuto reads buffers of this process only";
}

/// The system limits the mappings of a process, whose threads may be many ranks.
TEST(Shm, RanksOfAProcessShareTheMappingOfAPeer) {
  const OtherProcess other;
  const auto a = make(0);
  const auto b = make(0);
  for (Shm* shm : {a.get(), b.get()})
    ASSERT_TRUE(shm->attach({peer_of(*shm), other.peer()}, Shm::SingleCopy::kAuto).ok());
  EXPECT_EQ(a->sender(key_to(1))->slots, b->sender(key_to(1))->slots);
}

TEST(Shm, RefusesMemoryThatIsNotTheOneAnnounced) {
  const OtherProcess other;
  const auto mine = make(0);
  Shm::Peer stale = other.peer();
  stale.address.token ^= 1;
  const Status attached = mine->attach({peer_of(*mine), stale}, Shm::SingleCopy::kAuto);
  EXPECT_EQ(attached.code(), Code::kRemote);
  EXPECT_THAT(std::string(attached.text()), HasSubstr("rank 1"));
  EXPECT_THAT(std::string(attached.text()), HasSubstr("is not the shared memory that was announced"));
}

}  // namespace
}  // namespace tutti::transport
