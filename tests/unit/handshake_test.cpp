// SPDX-License-Identifier: Apache-2.0
// Proofs of the handshake: a published vector, and each part of a proof.
#include "tutti/sdk/handshake.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string_view>

#include "unit/required.h"

namespace tutti::sdk {
namespace {

using test::required;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex(const Proof& proof) {
  std::string text;
  for (const std::byte byte : proof) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

Nonce filled_with(char c) {
  Nonce nonce;
  nonce.fill(static_cast<std::byte>(c));
  return nonce;
}

// Computed with Python's hmac module:
// hmac.new(b'a secret of 16 B', b'\1' + b'A' * 16 + b'C' * 16 + b'hello', 'sha256').hexdigest()
TEST(Handshake, ProofIsHmacSha256) {
  EXPECT_EQ(hex(required(prove(bytes_of("a secret of 16 B"), Side::kConnector, filled_with('A'), filled_with('C'),
                               bytes_of("hello")))),
            "400f731a8f986fc01d54892ea7e5b18d3c7f05d9aa1eb229ca764035ce9f8934");
}

TEST(Handshake, EveryPartCounts) {
  const auto secret = bytes_of("a secret of 16 B");
  const auto message = bytes_of("hello");
  const Nonce a = filled_with('A');
  const Nonce c = filled_with('C');
  const Proof proof = required(prove(secret, Side::kConnector, a, c, message));
  EXPECT_TRUE(same(proof, required(prove(secret, Side::kConnector, a, c, message))));
  EXPECT_FALSE(same(proof, required(prove(bytes_of("a secret of 16 C"), Side::kConnector, a, c, message))));
  EXPECT_FALSE(same(proof, required(prove(secret, Side::kAcceptor, a, c, message))));
  EXPECT_FALSE(same(proof, required(prove(secret, Side::kConnector, filled_with('B'), c, message))));
  EXPECT_FALSE(same(proof, required(prove(secret, Side::kConnector, a, filled_with('D'), message))));
  EXPECT_FALSE(same(proof, required(prove(secret, Side::kConnector, c, a, message))));
  EXPECT_FALSE(same(proof, required(prove(secret, Side::kConnector, a, c, bytes_of("hellO")))));
  EXPECT_FALSE(same(proof, required(prove(secret, Side::kConnector, a, c, bytes_of("hello!")))));
}

TEST(Handshake, NoncesDiffer) {
  EXPECT_NE(required(make_nonce()), required(make_nonce()));
}

}  // namespace
}  // namespace tutti::sdk
