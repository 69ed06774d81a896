// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/endpoint.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/hub.h"
#include "bootstrap/interface.h"
#include "log/log.h"

namespace tutti {

/// The one way to the bytes of an id.
struct UniqueIdAccess {
  static std::span<std::byte, 128> bytes(UniqueId& id) { return id.bytes_; }
  static std::span<const std::byte, 128> bytes(const UniqueId& id) { return id.bytes_; }
};

namespace bootstrap {
namespace {

constexpr std::array<char, 8> kIdMagic = {'T', 'U', 'T', 'T', 'I', '-', 'I', 'D'};
constexpr uint32_t kIdVersion = 1;

/// The 128 bytes.
struct Layout {
  std::array<char, 8> magic;
  uint32_t version;
  uint16_t ip_bytes;  ///< 4 or 16
  uint16_t port;
  std::array<uint8_t, 16> ip;
  Secret secret;
  std::array<std::byte, 80> zero;
};
static_assert(sizeof(Layout) == sizeof(UniqueId));

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Starts a hub and makes its id. Port 0: any.
Result<UniqueId> serve(const base::SocketAddress& address, const Secret& secret) {
  TUTTI_ASSIGN(const auto poller, Poller::shared());
  TUTTI_ASSIGN(const base::SocketAddress served, Hub::serve(*poller, address, secret));
  log::info("bootstrap: ranks meet at {}", served.to_string());
  return to_unique_id({served, secret});
}

}  // namespace

Result<Secret> parse_secret(std::string_view hex) {
  Secret secret;
  const bool digits = std::all_of(hex.begin(), hex.end(), [](char c) { return hex_digit(c) >= 0; });
  if (hex.size() != 2 * secret.size() || !digits)
    return Status(Code::kInvalidArgument, fmt::format("the secret of a unique id is {} hexadecimal digits; this one "
                                                      "has {} characters{}",
                                                      2 * secret.size(), hex.size(), digits ? "" : ", not all digits"));
  for (size_t i = 0; i < secret.size(); ++i)
    secret[i] = static_cast<std::byte>(hex_digit(hex[2 * i]) * 16 + hex_digit(hex[2 * i + 1]));
  return secret;
}

Result<Secret> random_secret() {
  Secret secret;
  if (::getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size()))
    return base::system_error("cannot draw a random secret");
  return secret;
}

UniqueId to_unique_id(const Endpoint& endpoint) {
  const auto ip = endpoint.address.ip();
  Layout layout = {.magic = kIdMagic,
                   .version = kIdVersion,
                   .ip_bytes = static_cast<uint16_t>(ip.size()),
                   .port = endpoint.address.port(),
                   .ip = {},
                   .secret = endpoint.secret,
                   .zero = {}};
  std::copy(ip.begin(), ip.end(), layout.ip.begin());
  UniqueId id;
  std::memcpy(UniqueIdAccess::bytes(id).data(), &layout, sizeof layout);
  return id;
}

Result<Endpoint> endpoint_of(const UniqueId& id) {
  Layout layout;
  std::memcpy(&layout, UniqueIdAccess::bytes(id).data(), sizeof layout);
  if (layout.magic != kIdMagic)
    return Status(Code::kInvalidArgument,
                  "this unique id is not one: pass every rank the bytes that "
                  "UniqueId::create() gave");
  if (layout.version != kIdVersion)
    return Status(Code::kVersionMismatch, fmt::format("this unique id has version {}, this library knows {}: install "
                                                      "the same Tutti on all nodes",
                                                      layout.version, kIdVersion));
  if ((layout.ip_bytes != 4 && layout.ip_bytes != 16) || layout.port == 0)
    return Status(Code::kInvalidArgument, "this unique id holds no address: its bytes were changed on the way");
  return Endpoint{base::SocketAddress(std::span(layout.ip).first(layout.ip_bytes), layout.port), layout.secret};
}

}  // namespace bootstrap

Result<UniqueId> UniqueId::create(std::string_view interfaces) {
  TUTTI_ASSIGN(const bootstrap::Interface chosen, bootstrap::choose_interface(interfaces));
  TUTTI_ASSIGN(const bootstrap::Secret secret, bootstrap::random_secret());
  return bootstrap::serve(chosen.address, secret);
}

Result<UniqueId> UniqueId::create_at(std::string_view address, std::string_view secret) {
  TUTTI_ASSIGN(const base::SocketAddress parsed, base::SocketAddress::parse(address));
  TUTTI_ASSIGN(const bootstrap::Secret key,
               secret.empty() ? bootstrap::random_secret() : bootstrap::parse_secret(secret));
  return bootstrap::serve(parsed, key);
}

Result<UniqueId> UniqueId::from_string(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return Status(Code::kInvalidArgument, fmt::format("'{}' is no unique id; it reads host:port:secret", text));
  TUTTI_ASSIGN(const base::SocketAddress address, base::SocketAddress::parse(text.substr(0, colon)));
  if (address.port() == 0) return Status(Code::kInvalidArgument, "port 0 in a unique id: nobody can listen there");
  TUTTI_ASSIGN(const bootstrap::Secret secret, bootstrap::parse_secret(text.substr(colon + 1)));
  return bootstrap::to_unique_id({address, secret});
}

std::string UniqueId::to_string() const {
  const auto endpoint = bootstrap::endpoint_of(*this);
  if (!endpoint.ok()) return "no unique id";
  std::string text = endpoint.value().address.to_string() + ':';
  for (const std::byte byte : endpoint.value().secret) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

}  // namespace tutti
