// SPDX-License-Identifier: Apache-2.0
// Any bytes in the exchange of net-ib, without a device: hellos at a listener, answers of a listener, welcomes, rails.
// The first byte chooses the place.
#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fuzz/stranger.h"
#include "net-ib/connecting.h"
#include "net-ib/handshake.h"
#include "net-ib/listener.h"

namespace {

using namespace tutti::net_ib;
using tutti::Code;
using namespace tutti::fuzz;

const Shared& shared() {
  static const std::unique_ptr<Shared> one = [] {
    auto made = std::make_unique<Shared>();
    made->settings.peer_loss = std::chrono::milliseconds(1000);
    made->events = *Events::create(made->host);
    return made;
  }();
  return *one;
}

/// A port whose device is not open: a guest that proves the secret is refused.
std::vector<Port> ports() {
  Port port;
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  port.exchange = {"lo", 0, Ip::from(reinterpret_cast<const sockaddr&>(loopback))};
  return {port};
}

/// `proves`: the hello carries the right proof; its other bytes may be anything. Then the answer is a refusal that is
/// proved.
void hear_hello(Bytes bytes, bool proves) {
  const Shared& state = shared();  // made first, so that it outlives the listener
  static std::unique_ptr<Listener> listener;
  static Handle handle;
  static unsigned inputs = 0;
  if (inputs++ % 64 == 0) {
    tutti_net_handle raw;
    listener = *Listener::open(state, ports(), raw);
    handle = *read_handle(raw);
  }
  const Fd socket = dial<Fd>(handle.port);
  Challenge challenge;
  demand(hear(*listener, socket, challenge) && check_challenge(challenge, "here").ok());
  const size_t length = proves ? sizeof(Hello) : std::min(bytes.size(), sizeof(Hello));
  Hello hello = object_from<Hello>(bytes);
  if (proves) {
    hello.magic = kMagic;
    hello.proof = *tutti::sdk::prove(handle.secret, tutti::sdk::Side::kConnector, challenge.nonce, hello.nonce,
                                     proved(hello.rails));
  }
  say(socket, &hello, length);
  if (proves) {
    Welcome welcome;
    demand(hear(*listener, socket, welcome));
    demand(check_welcome(handle, challenge, hello, welcome, "here").code() == Code::kSystem);
  }
  for (int round = 0; round < 3; ++round) {
    auto accepted = listener->accept();
    demand(accepted.ok() && *accepted == nullptr);
  }
}

/// As a listener that answers with these bytes.
void answer_connecting(Bytes bytes) {
  static uint16_t port = 0;
  static const Fd listener = *listen_at(ports().front().exchange, port);
  Handle handle;
  handle.ip = ports().front().exchange.ip;
  handle.port = port;
  tutti_net_handle raw{};
  std::memcpy(raw.bytes, &handle, sizeof handle);
  auto connecting = *Connecting::start(shared(), ports(), raw);
  demand(connecting->advance().ok());
  const Fd socket = take_guest(listener);
  say(socket, bytes.data(), bytes.size());
  drive_in_vain(*connecting);  // there is no device
}

/// A handle, a hello, a welcome and two rails, with and without a proof.
void check_all(Bytes bytes, bool proves) {
  const auto raw = object_from<tutti_net_handle>(bytes);
  const auto read = read_handle(raw);
  Handle handle = read.ok() ? *read : Handle();
  auto challenge = object_from<Challenge>(bytes);
  auto welcome = object_from<Welcome>(bytes);
  const auto hello = object_from<Hello>(bytes);
  const tutti::Status challenged = check_challenge(challenge, "there");
  demand(challenged.ok() == (challenge.magic == kMagic));
  if (proves) {
    welcome.proof = *tutti::sdk::prove(handle.secret, tutti::sdk::Side::kAcceptor, challenge.nonce, hello.nonce,
                                       proved(hello.rails, welcome));
  }
  const tutti::Status welcomed = check_welcome(handle, challenge, hello, welcome, "there");
  demand(proves ? welcomed.ok() == (welcome.refusal[0] == '\0') : welcomed.code() == Code::kMismatch);
  for (size_t i = 0; i < kMaxRails; ++i) {
    const tutti::Status joined = check_rail(hello.rails[i], welcome.rails[i]);
    demand(!joined.ok() || (welcome.rails[i].count > 0 && welcome.rails[i].count <= kMaxQueuePairs));
    demand(joined.text().size() < 1000 && device_of(welcome.rails[i]).size() <= sizeof welcome.rails[i].device);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return choose(
      data, size,
      {[](Bytes bytes) { hear_hello(bytes, false); }, [](Bytes bytes) { hear_hello(bytes, true); }, answer_connecting,
       [](Bytes bytes) { check_all(bytes, false); }, [](Bytes bytes) { check_all(bytes, true); }});
}
