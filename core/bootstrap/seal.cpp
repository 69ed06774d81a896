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

const unsigned char* in(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* out(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

Status unavailable() {
  return {Code::kInternal, "OpenSSL cannot compute AES-256-GCM; does its configuration forbid it?"};
}

/// Begins a message. The context keeps its key, whose schedule takes longer to make than a small message to open.
bool begin(EVP_CIPHER_CTX* keyed, const std::byte* nonce) {
  return EVP_CipherInit_ex(keyed, nullptr, nullptr, nullptr, in(nonce), -1) == 1;
}

Status refusal(Seal::AssociatedData associated) {
  return {Code::kMismatch,
          fmt::format("what rank {} gave to call {} of the rendezvous has been changed on its way, or was made with "
                      "another secret; check the machines and links between the ranks and the hub, and that all ranks "
                      "have the same unique id",
                      associated.rank, associated.call)};
}

}  // namespace

void Seal::FreeContext::operator()(EVP_CIPHER_CTX* context) const {
  EVP_CIPHER_CTX_free(context);
}

Result<std::unique_ptr<const Seal>> Seal::create(const Secret& secret) {
  TUTTI_ASSIGN(const sdk::Proof key, derive_key(secret, "seal of the calls of a group"));
  const auto keyed = [&](int encrypts) {
    Context context(EVP_CIPHER_CTX_new());
    const bool made = context != nullptr && EVP_CipherInit_ex(context.get(), EVP_aes_256_gcm(), nullptr, in(key.data()),
                                                              nullptr, encrypts) == 1;
    return made ? std::move(context) : nullptr;
  };
  Context closing = keyed(1);
  Context opening = keyed(0);
  if (closing == nullptr || opening == nullptr) return unavailable();
  return std::unique_ptr<const Seal>(new Seal(std::move(closing), std::move(opening)));
}

Result<Bytes> Seal::close(std::span<const std::byte> plain, AssociatedData associated) const {
  std::array<std::byte, kNonceBytes> nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    return base::system_error("cannot draw random bytes");
  Bytes sealed(plain.size() + kMoreBytes);
  std::copy(nonce.begin(), nonce.end(), sealed.begin());
  const auto where = std::as_bytes(std::span(&associated, 1));
  EVP_CIPHER_CTX* const context = closing_.get();
  std::byte* const body = sealed.data() + kNonceBytes;
  int length = 0;
  const bool done =
      begin(context, sealed.data()) &&
      EVP_EncryptUpdate(context, nullptr, &length, in(where.data()), static_cast<int>(where.size())) == 1 &&
      EVP_EncryptUpdate(context, out(body), &length, in(plain.data()), static_cast<int>(plain.size())) == 1 &&
      EVP_EncryptFinal_ex(context, out(body + plain.size()), &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, kTagBytes, body + plain.size()) == 1;
  if (!done) return unavailable();
  return sealed;
}

Result<Bytes> Seal::open(std::span<const std::byte> sealed, AssociatedData associated) const {
  Bytes plain(opened_bytes(sealed));
  TUTTI_TRY(open(sealed, associated, plain));
  return plain;
}

Status Seal::open(std::span<const std::byte> sealed, AssociatedData associated, std::span<std::byte> plain) const {
  if (sealed.size() < kMoreBytes) return refusal(associated);
  const std::span<const std::byte> body = sealed.subspan(kNonceBytes, sealed.size() - kMoreBytes);
  std::array<std::byte, kTagBytes> tag;
  std::copy_n(sealed.end() - kTagBytes, kTagBytes, tag.begin());
  const auto where = std::as_bytes(std::span(&associated, 1));
  EVP_CIPHER_CTX* const context = opening_.get();
  int length = 0;
  const bool ready =
      begin(context, sealed.data()) &&
      EVP_DecryptUpdate(context, nullptr, &length, in(where.data()), static_cast<int>(where.size())) == 1 &&
      (body.empty() ||
       EVP_DecryptUpdate(context, out(plain.data()), &length, in(body.data()), static_cast<int>(body.size())) == 1) &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) == 1;
  if (!ready) return unavailable();
  std::array<std::byte, kTagBytes> rest;  // GCM has none
  if (EVP_DecryptFinal_ex(context, out(rest.data()), &length) != 1) return refusal(associated);
  return {};
}

}  // namespace tutti::bootstrap
