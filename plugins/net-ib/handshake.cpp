// SPDX-License-Identifier: Apache-2.0
#include "handshake.h"

#include <fmt/format.h>

#include <cstring>

namespace tutti::net_ib {
namespace {

template <size_t N>
std::string_view text_of(const std::array<char, N>& bytes) {
  return {bytes.data(), strnlen(bytes.data(), bytes.size())};
}

}  // namespace

Result<Handle> read_handle(const tutti_net_handle& raw) {
  Handle handle;
  std::memcpy(&handle, raw.bytes, sizeof handle);
  if (handle.magic == kMagic && !handle.ip.is_none() && handle.port != 0) return handle;
  return Status(Code::kInvalidArgument,
                "the handle is not one of this version of net-ib; do all ranks use the same network plugin of the same "
                "version?");
}

Status check_challenge(const Challenge& challenge, std::string_view place) {
  if (challenge.magic == kMagic) return {};
  return {Code::kVersionMismatch,
          fmt::format("{} does not speak the protocol of this version of net-ib; do all ranks use the same version?",
                      place)};
}

Result<bool> is_friend(const Handle& own, const sdk::Nonce& nonce, const Hello& hello) {
  if (hello.magic != kMagic) return false;
  TUTTI_ASSIGN(const sdk::Proof expected,
               sdk::prove(own.secret, sdk::Side::kConnector, nonce, hello.nonce, proved(hello.rails)));
  return sdk::same(expected, hello.proof);
}

Status check_welcome(const Handle& there, const Challenge& challenge, const Hello& hello, const Welcome& welcome,
                     std::string_view place) {
  TUTTI_ASSIGN(const sdk::Proof expected, sdk::prove(there.secret, sdk::Side::kAcceptor, challenge.nonce, hello.nonce,
                                                     proved(hello.rails, welcome)));
  if (!sdk::same(expected, welcome.proof)) {
    return {Code::kMismatch,
            fmt::format("{} cannot prove that it is the rank it pretends to be; another process has taken its port",
                        place)};
  }
  const std::string_view refusal = text_of(welcome.refusal);
  return refusal.empty() ? Status() : Status(Code::kSystem, fmt::format("the other end refuses: {}", refusal));
}

Status check_rail(const Endpoint& own, const Endpoint& peer) {
  const auto joined = [&] { return fmt::format("{} and {}", device_of(own), device_of(peer)); };
  if (peer.count == 0 || peer.count > kMaxQueuePairs) {
    return {Code::kMismatch, fmt::format("{}: the other end has {} queue pairs; are both plugins of one version?",
                                         joined(), peer.count)};
  }
  if (peer.link_layer == own.link_layer && peer.gid_type == own.gid_type) return {};
  return {Code::kMismatch, fmt::format("{} are ports of different kinds (InfiniBand, RoCE v1, RoCE v2); set "
                                       "settings.net.ib.devices or settings.net.ib.roce alike on all hosts",
                                       joined())};
}

std::string_view device_of(const Endpoint& endpoint) {
  return text_of(endpoint.device);
}

}  // namespace tutti::net_ib
