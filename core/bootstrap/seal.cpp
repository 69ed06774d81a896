// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/seal.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

#include "base/fd.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;
static_assert(kNonceBytes + kTagBytes == Seal::kMoreBytes);

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* in(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* out(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

Status unavailable() {
  return {Code::kInternal, "OpenSSL cannot compute AES-256-GCM; does its configuration forbid it?"};
}

}  // namespace

Result<std::unique_ptr<const Seal>> Seal::create(const Secret& secret) {
  const sdk::Nonce zeros = {};
  TUTTI_ASSIGN(const sdk::Proof key, sdk::prove(secret, sdk::Side::kAcceptor, zeros, zeros,
                                                std::as_bytes(std::span("seal of the calls of a group"))));
  return std::unique_ptr<const Seal>(new Seal(key));
}

Result<Bytes> Seal::close(std::span<const std::byte> plain, Place place) const {
  std::array<std::byte, kNonceBytes> nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return base::system_error("cannot draw random bytes");
  Bytes sealed(plain.size() + kMoreBytes);
  std::copy(nonce.begin(), nonce.end(), sealed.begin());
  const auto where = payload_of(place);
  const Context context(EVP_CIPHER_CTX_new());
  std::byte* const body = sealed.data() + kNonceBytes;
  int length = 0;
  const bool done =
      context != nullptr &&
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, in(key_.data()), in(sealed.data())) == 1 &&
      EVP_EncryptUpdate(context.get(), nullptr, &length, in(where.data()), static_cast<int>(where.size())) == 1 &&
      EVP_EncryptUpdate(context.get(), out(body), &length, in(plain.data()), static_cast<int>(plain.size())) == 1 &&
      EVP_EncryptFinal_ex(context.get(), out(body + plain.size()), &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, body + plain.size()) == 1;
  if (!done) return unavailable();
  return sealed;
}

Result<Bytes> Seal::open(std::span<const std::byte> sealed, Place place) const {
  const Status refused(Code::kMismatch,
                       fmt::format("what rank {} gave to call {} of the rendezvous has been changed on its way, or was "
                                   "made with another secret; check the machines and links between the ranks and the "
                                   "hub, and that all ranks have the same unique id",
                                   place.rank, place.call));
  if (sealed.size() < kMoreBytes) return refused;
  Bytes plain(sealed.size() - kMoreBytes);
  std::array<std::byte, kTagBytes> tag;
  std::copy(sealed.end() - kTagBytes, sealed.end(), tag.begin());
  const auto where = payload_of(place);
  const std::byte* const body = sealed.data() + kNonceBytes;
  const Context context(EVP_CIPHER_CTX_new());
  int length = 0;
  const bool ready =
      context != nullptr &&
      EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, in(key_.data()), in(sealed.data())) == 1 &&
      EVP_DecryptUpdate(context.get(), nullptr, &length, in(where.data()), static_cast<int>(where.size())) == 1 &&
      EVP_DecryptUpdate(context.get(), out(plain.data()), &length, in(body), static_cast<int>(plain.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1;
  if (!ready) return unavailable();
  if (EVP_DecryptFinal_ex(context.get(), out(plain.data() + plain.size()), &length) != 1) return refused;
  return plain;
}

}  // namespace tutti::bootstrap
