// SPDX-License-Identifier: Apache-2.0
// Both sides of the acceptor prove that they know the secret, and a stranger does not learn it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <filesystem>

#include "bootstrap/acceptor.h"
#include "bootstrap/process.h"
#include "unit/bootstrap_group.h"
#include "unit/required.h"

namespace tutti::bootstrap {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

std::string text_of(const Status& status) {
  return std::string(status.text());
}

/// An id at a port of its own: no unused id of another test keeps the listener open.
UniqueId make_id_at_own_port() {
  base::SocketAddress address = base::SocketAddress::parse("127.0.0.1:0").value();
  auto listener = base::listen_on(address);
  address.set_port(base::local_address(*listener).port());
  listener->reset();
  return test::required(UniqueId::create_at(address.to_string()));
}

/// A process that holds the port of an id, without its secret.
class Impostor {
 public:
  Impostor() : listener_(base::listen_on(base::SocketAddress::parse("127.0.0.1:0").value()).value()) {
    std::ranges::copy(sdk::make_nonce().value(), secret_.begin());
  }
  UniqueId id() const { return to_unique_id({base::local_address(listener_), secret_}); }
  const Secret& secret() const { return secret_; }

  base::Fd take() const {
    pollfd readable = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&readable, 1, 60000), 1);
    return base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  base::Fd listener_;
  Secret secret_;
};

void say(const base::Fd& socket, Header header, std::span<const std::byte> payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  (void)!::send(socket.get(), &header, sizeof header, MSG_NOSIGNAL);
  (void)!::send(socket.get(), payload.data(), payload.size(), MSG_NOSIGNAL);
}

/// All that comes until `count` bytes are there, or the other side closes.
Bytes hear(const base::Fd& socket, size_t count) {
  Bytes bytes(count);
  size_t got = 0;
  while (got < count) {
    const ssize_t read = ::recv(socket.get(), bytes.data() + got, count - got, 0);
    if (read <= 0) break;
    got += static_cast<size_t>(read);
  }
  bytes.resize(got);
  return bytes;
}

TEST(Handshake, AnImpostorLearnsNoSecretAndIsNamed) {
  const Impostor impostor;
  auto joining = std::async(std::launch::async, [&] { return Bootstrap::join(impostor.id(), 0, 2, soon()).status(); });
  const base::Fd guest = impostor.take();
  say(guest, {.kind = Kind::kChallenge}, payload_of(Challenge()));
  const Bytes hello = hear(guest, sizeof(Header) + sizeof(Hello));
  ASSERT_EQ(hello.size(), sizeof(Header) + sizeof(Hello));
  const auto& secret = impostor.secret();
  EXPECT_EQ(std::search(hello.begin(), hello.end(), secret.begin(), secret.end()), hello.end());
  say(guest, {.kind = Kind::kWelcome}, payload_of(sdk::Proof()));
  const Status status = joining.get();
  EXPECT_EQ(status.code(), Code::kRemote);
  EXPECT_THAT(text_of(status), HasSubstr("does not know the secret of this unique id"));
}

TEST(Handshake, NothingIsBelievedBeforeTheProof) {
  const Impostor impostor;
  auto joining = std::async(std::launch::async, [&] { return Bootstrap::join(impostor.id(), 0, 2, soon()).status(); });
  const base::Fd guest = impostor.take();
  say(guest, {.kind = Kind::kReply, .code = static_cast<uint16_t>(Code::kInternal), .id = 1}, to_bytes("a lie"));
  const Status status = joining.get();
  EXPECT_EQ(status.code(), Code::kRemote);
  EXPECT_THAT(text_of(status), HasSubstr("is no hub of this version"));
}

/// The text of a rank about a process whose first frame is this frame.
std::string text_on_first(const Header& header, const Challenge& challenge) {
  const Impostor impostor;
  auto joining = std::async(std::launch::async, [&] { return Bootstrap::join(impostor.id(), 0, 2, soon()).status(); });
  const base::Fd guest = impostor.take();
  say(guest, header, payload_of(challenge));
  (void)!::shutdown(guest.get(), SHUT_WR);
  return text_of(joining.get());
}

TEST(Handshake, AChallengeOfAnotherProgramIsNone) {
  Challenge other;
  other.magic[0] = '?';
  EXPECT_THAT(text_on_first({.kind = Kind::kChallenge}, other), HasSubstr("is no hub of this version"));
}

TEST(Handshake, OnlyAChallengeIsTheFirstFrame) {
  EXPECT_THAT(text_on_first({.kind = Kind::kWelcome}, Challenge()), HasSubstr("is no hub of this version"));
}

TEST(Handshake, AProofOfTheConnectorIsNoProofOfTheHub) {
  const Impostor impostor;
  auto joining = std::async(std::launch::async, [&] { return Bootstrap::join(impostor.id(), 0, 2, soon()).status(); });
  const base::Fd guest = impostor.take();
  say(guest, {.kind = Kind::kChallenge}, payload_of(Challenge()));
  const Bytes bytes = hear(guest, sizeof(Header) + sizeof(Hello));
  Hello hello;
  ASSERT_EQ(bytes.size(), sizeof(Header) + sizeof hello);
  std::memcpy(&hello, bytes.data() + sizeof(Header), sizeof hello);
  say(guest, {.kind = Kind::kWelcome}, payload_of(hello.proof));
  EXPECT_THAT(text_of(joining.get()), HasSubstr("does not know the secret"));
}

TEST(Handshake, AProcessThatHangsUpIsNamed) {
  Impostor impostor;
  auto joining = std::async(std::launch::async, [&] { return Bootstrap::join(impostor.id(), 0, 2, soon()).status(); });
  for (int attempt = 0; attempt < 4; ++attempt) impostor.take().reset();
  EXPECT_THAT(text_of(joining.get()), HasSubstr("closed the connection at once"));
}

TEST(Handshake, ASilentProcessIsNamed) {
  const Impostor impostor;
  const Status status = Bootstrap::join(impostor.id(), 0, 2, base::time_in(base::Milliseconds(200))).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(text_of(status), HasSubstr("accepts no connection"));
}

TEST(Handshake, ARecordedHelloIsWorthNothing) {
  const UniqueId id = make_id();
  const Stranger recorded(id);
  const Frame first = recorded.hear();
  Challenge challenge;
  ASSERT_EQ(first.payload.size(), sizeof challenge);
  std::memcpy(&challenge, first.payload.data(), sizeof challenge);
  Hello hello = hello_to(id, 1, 2);
  const Secret secret = endpoint_of(id).value().secret;
  hello.proof = prove_hello(secret, sdk::Side::kConnector, challenge.nonce, payload_of(hello)).value();

  const Stranger replaying(id);
  EXPECT_EQ(replaying.hear().header.kind, Kind::kChallenge);
  replaying.say({.kind = Kind::kHello, .timeout_ms = 60000}, payload_of(hello));
  EXPECT_TRUE(replaying.hears_end());
  make_group(id, 2);  // no stranger has taken the place of rank 1
}

TEST(Handshake, TheHubProvesThatItKnowsTheSecret) {
  const UniqueId id = make_id();
  const Stranger rank(id);
  rank.join(id, 1, 2);
  const Frame welcome = rank.hear();
  EXPECT_EQ(welcome.header.kind, Kind::kWelcome);
  EXPECT_EQ(welcome.payload.size(), sizeof(sdk::Proof));
}

// Refused processes.

/// The reason why rank 0 of 2, which comes alone, cannot join.
std::string text_of_lonely_join(const UniqueId& id) {
  const Stranger rank(id);
  rank.join(id, hello_to(id, 0, 2), 1);
  return to_text(rank.hear(Kind::kReply).payload);
}

/// Says a hello of another secret, and returns when the hub has refused it.
void show_wrong_secret(const UniqueId& id, uint64_t process) {
  Endpoint other = endpoint_of(id).value();
  other.secret[3] ^= std::byte{1};
  const UniqueId wrong = to_unique_id(other);
  Hello hello = hello_to(wrong, 1, 2);
  hello.process = process;
  const Stranger stranger(id);
  stranger.join(wrong, hello);
  EXPECT_TRUE(stranger.hears_end());
}

TEST(Refusals, AreCountedByProcess) {
  const UniqueId id = make_id_at_own_port();
  show_wrong_secret(id, 7);
  show_wrong_secret(id, 7);
  EXPECT_THAT(text_of_lonely_join(id),
              MatchesRegex("rank 1 of 2 did not join within 1 ms; 1 process was refused because its secret is wrong "
                           "\\(from 127.0.0.1\\): give all ranks the same id, TUTTI_ID_SECRET or "
                           "TUTTI_ID_SECRET_FILE"));
  const UniqueId next = make_id_at_own_port();
  show_wrong_secret(next, 7);
  show_wrong_secret(next, 8);
  EXPECT_THAT(text_of_lonely_join(next), HasSubstr("; 2 processes were refused because their secrets are wrong (the "
                                                   "last from 127.0.0.1): "));
}

TEST(Refusals, OfTheRightTagAndAWrongProofAreCounted) {
  const UniqueId id = make_id_at_own_port();
  const Stranger stranger(id);
  stranger.say({.kind = Kind::kHello}, payload_of(hello_to(id, 1, 2)));  // without a proof
  EXPECT_TRUE(stranger.hears_end());
  EXPECT_THAT(text_of_lonely_join(id), HasSubstr("; 1 process was refused"));
}

/// Each stranger is dropped, and none shows a proof.
TEST(Refusals, OfOtherStrangersAreNotCounted) {
  const UniqueId id = make_id_at_own_port();
  { const Stranger port_scan(id); }
  const Bytes whole = payload_of(hello_to(id, 1, 2));
  Hello old_version = hello_to(id, 1, 2);
  old_version.wire_version = kFirstVersionWithProofs - 1;
  Hello short_of_proof = hello_to(id, 1, 2);
  short_of_proof.wire_version = kWireVersion + 1;
  const Bytes cut = payload_of(short_of_proof);
  const auto expect_drop = [&](Header header, std::span<const std::byte> payload) {
    const Stranger stranger(id);
    stranger.say(header, payload);
    EXPECT_TRUE(stranger.hears_end());
  };
  expect_drop({.kind = Kind::kCall}, whole);
  expect_drop({.kind = Kind::kHello}, std::span(whole).first(whole.size() - 1));
  expect_drop({.kind = Kind::kHello}, payload_of(old_version));
  expect_drop({.kind = Kind::kHello}, std::span(cut).first(offsetof(Hello, rank_count) - 1));
  EXPECT_EQ(text_of_lonely_join(id), "rank 1 of 2 did not join within 1 ms");
}

// Descriptors and listeners.

long open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

TEST(Acceptor, UnusedIdsShareOneDescriptor) {
  make_id();
  const long before = open_descriptors();
  std::vector<UniqueId> ids;
  for (int i = 0; i < 300; ++i) ids.push_back(make_id());
  EXPECT_LE(open_descriptors(), before + 1);
  make_group(ids[7], 2);
  make_group(ids[299], 2);
}

TEST(Acceptor, ClosesWhenAllHaveJoined) {
  const UniqueId id = make_id_at_own_port();
  const Group group = make_group(id, 2);
  const base::Time limit = soon();
  std::string text;  // on a busy machine, an attempt may also end before it is refused
  while (text.find("Connection refused") == std::string::npos && base::Clock::now() < limit)
    text = text_of(base::connect_to(endpoint_of(id)->address, base::time_in(base::Milliseconds(50))).status());
  EXPECT_THAT(text, HasSubstr("Connection refused"));
  EXPECT_TRUE(group[0]->query({}, soon()).ok());
}

/// The hub lingers after its ranks have joined. Strangers that come then cost little: the acceptor rests between
/// batches.
TEST(Acceptor, RestsBetweenGuestsWhenAllHaveJoined) {
  const UniqueId id = make_id_at_own_port();
  const Group group = make_group(id, 2);
  const base::Time begin = base::Clock::now();
  std::vector<Stranger> guests;
  for (int i = 0; i < 3 * Acceptor::kMostAtOnce; ++i) guests.emplace_back(id);
  for (const Stranger& guest : guests) ASSERT_EQ(guest.hear().header.kind, Kind::kChallenge);
  EXPECT_GE(base::Clock::now() - begin, 2 * Acceptor::kRestWhenComplete);
}

TEST(Acceptor, DoesNotRestWhileRanksAreMissing) {
  const UniqueId id = make_id();
  const base::Time begin = base::Clock::now();
  std::vector<Stranger> guests;
  for (int i = 0; i < 20 * Acceptor::kMostAtOnce; ++i) guests.emplace_back(id);
  for (const Stranger& guest : guests) ASSERT_EQ(guest.hear().header.kind, Kind::kChallenge);
  EXPECT_LT(base::Clock::now() - begin, 19 * Acceptor::kRestWhenComplete);
}

TEST(Acceptor, TheTextTellsOfDescriptorsThatRunOut) {
  const UniqueId id = make_id();
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 3;  // no more than there are
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status status = Bootstrap::join(id, 0, 2, soon()).status();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(text_of(status), HasSubstr("raise the limit (ulimit -n)"));
}

}  // namespace
}  // namespace tutti::bootstrap
