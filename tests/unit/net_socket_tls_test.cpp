// SPDX-License-Identifier: Apache-2.0
// The socket network with TLS. A relay sits on the path: it reads all bytes, and may change one or cut the stream.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "base/fd.h"
#include "base/socket.h"
#include "net-socket/data_socket.h"
#include "net-socket/tls.h"
#include "net-socket/wire.h"
#include "unit/socket_network.h"

namespace tutti {
namespace {

using net_socket::Address;
using net_socket::Challenge;
using net_socket::Fd;
using net_socket::Hello;
using net_socket::StreamKey;
using net_socket::Tls;
using net_socket::TlsStream;
using test::kLimit;
using test::random_bytes;
using test::SocketNetwork;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Bytes = std::vector<uint8_t>;

// Bytes that go in clear before TLS, from the connecting side and from the listener.
constexpr size_t kClearBytes = sizeof(Hello);
constexpr size_t kEndBytes = 24;  // the end of a stream in TLS, after all data
constexpr size_t kClearBytesBack = sizeof(Challenge) + sizeof(sdk::Proof);

SocketNetwork::Settings one_stream(const char* tls) {
  return {
      {"settings.net.socket.streams", "1"}, {"settings.net.socket.silence", "100ms"}, {"settings.net.socket.tls", tls}};
}

/// Acts of a relay at one byte of the first connection that has so many.
struct Attack {
  enum { kNone, kFlip, kCut } kind = kNone;
  bool back = false;  ///< in the bytes from the listener
  size_t at = 0;
  uint8_t mask = 1;
};

/// Carries connections to a listener, on a thread. One relay reads them all.
class Relay {
 public:
  Relay(const tutti_net_handle& to, const Attack& attack) : attack_(attack), handle_(to) {
    Address address;
    std::memcpy(&address, to.bytes, sizeof address);
    to_ = base::SocketAddress(std::span(address.ip).first(4), address.port);
    listener_ = test::required(base::listen_on(test::required(base::SocketAddress::parse("127.0.0.1:0"))));
    address.port = base::local_address(listener_).port();
    std::memcpy(handle_.bytes, &address, sizeof address);
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  const tutti_net_handle& handle() const { return handle_; }
  bool has_attacked() const { return attacked_; }
  /// Whether a sequence of bytes has crossed the relay within one connection and direction.
  bool has_seen(std::span<const uint8_t> wanted) {
    const std::lock_guard lock(mutex_);
    return std::any_of(ways_.begin(), ways_.end(), [&](const Way& way) {
      return std::search(way.seen.begin(), way.seen.end(), wanted.begin(), wanted.end()) != way.seen.end();
    });
  }
  /// Bytes of the first connection in one direction.
  size_t byte_count(bool back) {
    const std::lock_guard lock(mutex_);
    return ways_.size() < 2 ? 0 : (back ? std::next(ways_.begin()) : ways_.begin())->seen.size();
  }

 private:
  struct Way {
    std::shared_ptr<base::Fd> from, to;
    bool back = false;
    bool open = true;
    Bytes seen;
  };

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> ready{{listener_.get(), POLLIN, 0}};
      for (const Way& way : ways_) ready.push_back({way.open ? way.from->get() : -1, POLLIN, 0});
      ::poll(ready.data(), ready.size(), 5);
      if ((ready.front().revents & POLLIN) != 0) take();
      size_t index = 1;
      for (auto way = ways_.begin(); index < ready.size(); ++index, ++way) {
        if (ready[index].revents != 0 && way->open) carry(*way);
      }
    }
  }

  void take() {
    const auto in = std::make_shared<base::Fd>(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto out = std::make_shared<base::Fd>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!in->valid() || ::connect(out->get(), to_.data(), to_.size()) != 0) return;
    const std::lock_guard lock(mutex_);
    ways_.push_back({in, out, false, true, {}});
    ways_.push_back({out, in, true, true, {}});
  }

  void carry(Way& way) {
    Bytes part(1 << 16);
    const ssize_t got = ::recv(way.from->get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return end(way);
    part.resize(static_cast<size_t>(got));
    const size_t before = way.seen.size();
    {
      const std::lock_guard lock(mutex_);
      way.seen.insert(way.seen.end(), part.begin(), part.end());
    }
    const bool meets = attack_.kind != Attack::kNone && !attacked_ && attack_.back == way.back &&
                       attack_.at >= before && attack_.at < way.seen.size();
    if (meets && attack_.kind == Attack::kFlip) part[attack_.at - before] ^= attack_.mask;
    if (meets && attack_.kind == Attack::kCut) part.resize(attack_.at - before);
    for (size_t sent = 0; sent < part.size();) {
      const ssize_t now = ::send(way.to->get(), part.data() + sent, part.size() - sent, MSG_NOSIGNAL);
      if (now < 0) return end(way);
      sent += static_cast<size_t>(now);
    }
    if (!meets) return;
    attacked_ = true;
    if (attack_.kind == Attack::kCut) {
      end(way);
      ::shutdown(way.from->get(), SHUT_RDWR);
    }
  }

  static void end(Way& way) {
    way.open = false;
    ::shutdown(way.to->get(), SHUT_WR);
  }

  const Attack attack_;
  tutti_net_handle handle_;
  base::SocketAddress to_;
  base::Fd listener_;
  std::mutex mutex_;  // guards ways_ against the test's thread
  std::list<Way> ways_;
  std::atomic<bool> attacked_ = false;
  std::jthread thread_;
};

/// A message through a relay. If its end does not come, a second message follows: a record whose length was changed
/// waits for more bytes.
struct Journey {
  int32_t code = TUTTI_OK;
  std::string text;
  bool arrived = false;
  bool right = false;  ///< arrived as it was sent
  bool ended = false;  ///< before the time was up
};

Journey travel(SocketNetwork& net, Relay& relay, const Bytes& data) {
  Bytes out(data.size(), 0xa5);
  void *connecting = nullptr, *accepting = nullptr, *sender = nullptr, *receiver = nullptr;
  void *sending = nullptr, *receiving = nullptr, *following = nullptr;
  const Bytes more(20'000);
  const auto patience = Clock::now() + std::chrono::seconds(2);
  bool sent = false;
  Journey journey;
  const auto good = [&](int32_t code) {
    if (code == TUTTI_OK || code == TUTTI_AGAIN) return true;
    journey.code = code;
    journey.text = plugin::take_failure_text();
    return false;
  };
  const auto& ops = net.ops();
  const auto step = [&]() -> bool {
    if (sender == nullptr) {
      const int32_t code = ops.connect(net.context(), 0, &relay.handle(), &connecting, &sender);
      if (code != TUTTI_AGAIN) connecting = nullptr;
      if (!good(code)) return true;
    }
    void* another = nullptr;  // where the sender has given the first one up
    if (!good(net.accept(&accepting, &another))) return true;
    if (another != nullptr) {
      if (receiver != nullptr) ops.close_connection(std::exchange(receiver, nullptr));
      receiver = another;
      receiving = nullptr;
    }
    if (sender != nullptr && !sent && sending == nullptr &&
        !good(ops.send(sender, data.data(), data.size(), 1, nullptr, &sending)))
      return true;
    if (sent && following == nullptr && Clock::now() > patience &&
        !good(ops.send(sender, more.data(), more.size(), 2, nullptr, &following)))
      return true;
    if (receiver != nullptr && receiving == nullptr) receiving = net.recv(receiver, out, 1);
    int32_t done = 0, gone = 0;
    if (sending != nullptr && !good(ops.test(sending, &gone, nullptr))) return true;
    if (gone != 0) sent = true, sending = nullptr;
    uint64_t bytes = 0;
    if (receiving != nullptr && !journey.arrived && !good(ops.test(receiving, &done, &bytes))) return true;
    if (done != 0) journey.arrived = true;
    return journey.arrived;
  };
  const auto end = Clock::now() + kLimit;
  while (!journey.ended && Clock::now() < end) journey.ended = step();
  journey.right = journey.arrived && out == data;
  if (connecting != nullptr) ops.cancel(connecting);
  for (void* connection : {sender, receiver}) {
    if (connection != nullptr) ops.close_connection(connection);
  }
  return journey;
}

Bytes pattern() {
  Bytes data(100'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>("the data of rank 0 "[i % 19]);
  return data;
}

TEST(TlsOnThePath, DataAreReadWithoutTlsAndNotWithIt) {
  for (const char* tls : {"off", "on", "user"}) {
    SocketNetwork net(one_stream(tls));
    Relay relay(net.handle(), {});
    const Bytes data = pattern();
    const Journey journey = travel(net, relay, data);
    EXPECT_TRUE(journey.right) << tls << ": " << journey.text;
    EXPECT_EQ(relay.has_seen(std::span(data).first(19)), std::string(tls) == "off") << tls;
    Address address;
    std::memcpy(&address, net.handle().bytes, sizeof address);
    const auto* secret = reinterpret_cast<const uint8_t*>(address.secret.data());
    EXPECT_FALSE(relay.has_seen(std::span(secret, 8))) << tls;
  }
}

TEST(TlsOnThePath, AByteThatChangesDataIsNoticed) {
  {
    SocketNetwork net(one_stream("off"));  // without TLS wrong data arrive
    Relay relay(net.handle(), {Attack::kFlip, false, kClearBytes + 5000, 1});
    const Journey journey = travel(net, relay, pattern());
    EXPECT_TRUE(relay.has_attacked());
    EXPECT_TRUE(journey.arrived);
    EXPECT_FALSE(journey.right);
  }
  for (const char* tls : {"on", "user"}) {
    for (const size_t at : {size_t{5000}, size_t{20'000}, size_t{99'000}}) {
      SocketNetwork net(one_stream(tls));
      Relay relay(net.handle(), {Attack::kFlip, false, kClearBytes + at, 0x80});
      const Journey journey = travel(net, relay, pattern());
      EXPECT_TRUE(relay.has_attacked());
      EXPECT_FALSE(journey.arrived);
      EXPECT_EQ(journey.code, TUTTI_MISMATCH) << journey.text;
      EXPECT_THAT(journey.text, AllOf(HasSubstr("127.0.0.1:"), HasSubstr("TLS refuses what arrived"),
                                      HasSubstr("check the machines and links")));
    }
  }
}

/// The relay ends the connection, which TLS tells from an end by the other side.
TEST(TlsOnThePath, ACutIsNoEnd) {
  SocketNetwork net(one_stream("on"));
  Relay relay(net.handle(), {Attack::kCut, false, kClearBytes + 50'000, 0});
  const Journey journey = travel(net, relay, pattern());
  EXPECT_TRUE(relay.has_attacked());
  EXPECT_FALSE(journey.arrived);
  EXPECT_EQ(journey.code, TUTTI_REMOTE) << journey.text;
}

/// Any byte of the handshakes and of the data, in both directions. An attack before TLS may only delay: the connecting
/// side connects again.
TEST(TlsOnThePath, NoChangeAnywhereDeliversWrongData) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  size_t forward = 0, back = 0;
  const Bytes data = random_bytes(3000);
  {
    SocketNetwork net(one_stream("on"));
    Relay relay(net.handle(), {});
    ASSERT_TRUE(travel(net, relay, data).right);
    forward = relay.byte_count(false) - kEndBytes;
    back = relay.byte_count(true) - kEndBytes;
  }
  ASSERT_GT(forward, kClearBytes + 3000);
  ASSERT_GT(back, kClearBytesBack + 100);
  for (int round = 0; round < 60; ++round) {
    Attack attack{round % 3 == 0 ? Attack::kCut : Attack::kFlip, round % 2 == 0, 0, uint8_t(1u << random() % 8)};
    attack.at = random() % (attack.back ? back : forward);
    SocketNetwork net(one_stream("on"));
    Relay relay(net.handle(), attack);
    const Journey journey = travel(net, relay, data);
    SCOPED_TRACE(testing::Message() << (attack.kind == Attack::kCut ? "cut" : "flip") << (attack.back ? " back" : "")
                                    << " at " << attack.at << ": " << journey.text);
    EXPECT_TRUE(journey.ended);
    EXPECT_TRUE(journey.arrived ? journey.right : !journey.text.empty());
    const size_t tls_start = attack.back ? kClearBytesBack : kClearBytes;
    const bool in_tls = attack.kind == Attack::kFlip && attack.at >= tls_start;
    // TLS 1.3 ignores the low byte of the version of the first record, which is not encrypted (RFC 8446, 5.1).
    const bool ignored = attack.at == tls_start + 2;
    if (in_tls && relay.has_attacked() && !ignored) {
      EXPECT_FALSE(journey.arrived);
      EXPECT_THAT(journey.text, HasSubstr("127.0.0.1:"));
    }
  }
}

TEST(Tls, SidesWithDifferentSettingsAreTold) {
  for (const auto& [listens, connects] : {std::pair("on", "off"), {"off", "on"}, {"off", "user"}}) {
    SocketNetwork listener(one_stream(listens)), connector(one_stream(connects));
    void *state = nullptr, *connection = nullptr;
    EXPECT_EQ(connector.ops().connect(connector.context(), 0, &listener.handle(), &state, &connection), TUTTI_MISMATCH);
    EXPECT_THAT(plugin::take_failure_text(), AllOf(HasSubstr("127.0.0.1:"), HasSubstr("settings.net.socket.tls")));
  }
  SocketNetwork listener(one_stream("on")), connector(one_stream("user"));  // both have TLS
  void *state = nullptr, *connection = nullptr;
  EXPECT_EQ(connector.ops().connect(connector.context(), 0, &listener.handle(), &state, &connection), TUTTI_AGAIN);
  connector.ops().cancel(state);
}

// Two ends of a stream without a network around them.

StreamKey new_key() {
  StreamKey key;
  const Bytes bytes = random_bytes(key.key.size());
  std::memcpy(key.key.data(), bytes.data(), bytes.size());
  return key;
}

struct Ends {
  Fd near, far;
  std::unique_ptr<TlsStream> sender, receiver;
};

Ends make_ends(const StreamKey& sends, const StreamKey& receives, uint64_t records_per_key = 1 << 20) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  Tls::Options options;
  options.records_per_key = records_per_key;
  const auto tls = test::required(Tls::create(options));
  Ends ends{Fd(pair[0]), Fd(pair[1]), nullptr, nullptr};
  ends.sender = test::required(TlsStream::create(tls, pair[0], TlsStream::Role::kSends, sends));
  ends.receiver = test::required(TlsStream::create(tls, pair[1], TlsStream::Role::kReceives, receives));
  return ends;
}

/// 0 when both are ready; else the errno of the first that fails.
int shake_hands(Ends& ends) {
  for (const auto limit = Clock::now() + kLimit; Clock::now() < limit;) {
    for (TlsStream* end : {ends.sender.get(), ends.receiver.get()}) {
      if (!end->ready() && end->shake_hands() != 0 && errno != EAGAIN) return errno;
    }
    if (ends.sender->ready() && ends.receiver->ready()) return 0;
  }
  return ETIMEDOUT;
}

TEST(TlsStream, PiecesOfAllSizesArriveInOrderUnderNewKeys) {
  const StreamKey key = new_key();
  Ends ends = make_ends(key, key, 3);
  ASSERT_EQ(shake_hands(ends), 0);
  std::mt19937 random(std::random_device{}());
  const Bytes data = random_bytes(3'000'000);
  Bytes out(data.size());
  size_t sent = 0, got = 0;
  for (const auto limit = Clock::now() + kLimit; got < out.size() && Clock::now() < limit;) {
    std::vector<iovec> pieces;
    size_t begin = sent;
    for (int i = 0; i < 5 && begin < data.size(); ++i) {
      const size_t most = i % 2 == 0 ? 40 : 70'000;
      const size_t bytes = std::min(data.size() - begin, 1 + random() % most);
      pieces.push_back({const_cast<uint8_t*>(data.data()) + begin, bytes});
      begin += bytes;
    }
    // After EAGAIN the same bytes come again, cut into other pieces.
    if (sent < data.size()) {
      const ssize_t now = ends.sender->send(pieces);
      ASSERT_TRUE(now >= 0 || errno == EAGAIN) << errno << " " << ends.sender->failure();
      if (now > 0) sent += static_cast<size_t>(now);
    }
    bool drained = false;
    const size_t room = std::min(out.size() - got, 1 + random() % 90'000);
    const ssize_t now = ends.receiver->recv(out.data() + got, room, drained);
    ASSERT_TRUE(now > 0 || (now < 0 && errno == EAGAIN)) << now << " " << errno;
    if (now > 0) got += static_cast<size_t>(now);
  }
  EXPECT_EQ(got, out.size());
  EXPECT_EQ(out, data);
  ends.sender.reset();  // says that the stream ends here
  bool drained = false;
  EXPECT_EQ(ends.receiver->recv(out.data(), 1, drained), 0);
}

TEST(TlsStream, AnotherKeyOrNameIsRefused) {
  const StreamKey key = new_key();
  StreamKey other = key;
  other.key[31] ^= std::byte{1};
  Ends wrong_key = make_ends(key, other);
  EXPECT_EQ(shake_hands(wrong_key), EBADMSG);
  other = key;
  other.identity[0] ^= std::byte{1};
  Ends wrong_name = make_ends(key, other);
  EXPECT_EQ(shake_hands(wrong_name), EBADMSG);
}

TEST(TlsStream, AnEndWithoutTlsEndIsACut) {
  const StreamKey key = new_key();
  Ends ends = make_ends(key, key);
  ASSERT_EQ(shake_hands(ends), 0);
  ::shutdown(ends.near.get(), SHUT_WR);
  uint8_t byte = 0;
  bool drained = false;
  EXPECT_EQ(ends.receiver->recv(&byte, 1, drained), -1);
  EXPECT_EQ(errno, ENODATA);
}

TEST(TlsStream, AClosedPeerRaisesNoSignal) {
  const StreamKey key = new_key();
  Ends ends = make_ends(key, key);
  ASSERT_EQ(shake_hands(ends), 0);
  ends.receiver.reset();
  ends.far = Fd();
  uint8_t byte = 0;
  const iovec piece{&byte, 1};
  ssize_t sent = 1;
  for (int i = 0; i < 100 && sent > 0; ++i) sent = ends.sender->send({&piece, 1});
  EXPECT_EQ(sent, -1);
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << errno;
}

/// Two sockets of TCP, as only these can have the kernel's TLS.
std::pair<Fd, Fd> tcp_pair() {
  const base::Fd listener = test::required(base::listen_on(test::required(base::SocketAddress::parse("127.0.0.1:0"))));
  const base::SocketAddress to = base::local_address(listener);
  Fd near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(near.get(), to.data(), to.size()), 0);
  Fd far(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  fcntl(near.get(), F_SETFL, O_NONBLOCK);
  return {std::move(near), std::move(far)};
}

bool kernel_has_tls() {
  const auto [near, far] = tcp_pair();
  return setsockopt(near.get(), IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0;
}

/// The emulated machine of tests/rdma-vm has the kernel's TLS, also where this machine has not.
TEST(TlsStream, TheKernelIsUsedWhereItHasTlsAndTheLogSaysSo) {
  for (const bool wanted : {true, false}) {
    auto [near, far] = tcp_pair();
    std::vector<std::string> lines;
    Tls::Options options;
    options.kernel = wanted;
    options.log = [&](const std::string& line) { lines.push_back(line); };
    const auto tls = test::required(Tls::create(options));
    const StreamKey key = new_key();
    Ends ends{std::move(near), std::move(far), nullptr, nullptr};
    ends.sender = test::required(TlsStream::create(tls, ends.near.get(), TlsStream::Role::kSends, key));
    ends.receiver = test::required(TlsStream::create(tls, ends.far.get(), TlsStream::Role::kReceives, key));
    ASSERT_EQ(shake_hands(ends), 0);
    const bool used = wanted && kernel_has_tls();
    EXPECT_EQ(ends.sender->uses_kernel(), used);
    ASSERT_EQ(lines.size(), 2u);
    const auto line = std::find_if(lines.begin(), lines.end(),
                                   [](const std::string& one) { return one.find("sending") != one.npos; });
    ASSERT_NE(line, lines.end());
    EXPECT_THAT(*line, HasSubstr(used ? "kernel TLS is in use" : "kernel TLS is not in use ("));
    std::printf("%s\n", line->c_str());
  }
}

/// A server with a certificate of its own making, and no key of the job.
TEST(TlsStream, AServerWithoutTheKeyIsRefused) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
  const Fd near(pair[0]), far(pair[1]);
  const auto tls = test::required(Tls::create({}));
  const auto client = test::required(TlsStream::create(tls, near.get(), TlsStream::Role::kSends, new_key()));
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  X509* const certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), -1000);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 100'000);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  EXPECT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
  SSL* const server = SSL_new(context);
  SSL_set_fd(server, far.get());
  int result = -1;
  for (int i = 0; i < 1000 && result != 0; ++i) {
    SSL_accept(server);
    result = client->shake_hands();
    if (result != 0 && errno != EAGAIN) break;
  }
  EXPECT_EQ(result, -1);
  EXPECT_EQ(errno, EBADMSG);
  EXPECT_FALSE(client->ready());
  SSL_free(server);
  SSL_CTX_free(context);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

}  // namespace
}  // namespace tutti
