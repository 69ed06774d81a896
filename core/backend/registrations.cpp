// SPDX-License-Identifier: Apache-2.0
#include "backend/registrations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>

namespace tutti::backend {
namespace {

const uint8_t* address(const void* pointer) {
  return static_cast<const uint8_t*>(pointer);
}

Status refuse(const std::string& text) {
  return {Code::kInvalidArgument, "register_buffer: " + text};
}

std::string ranks_text(const std::vector<size_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ","));
}

}  // namespace

Status check_claims(std::span<const Claim> claims) {
  std::vector<size_t> without;
  std::map<uint64_t, std::vector<size_t>> by_size;
  for (size_t rank = 0; rank < claims.size(); ++rank) {
    if (claims[rank].is_null != 0) without.push_back(rank);
    by_size[claims[rank].bytes].push_back(rank);
  }
  if (!without.empty()) return refuse("the buffer is null on " + ranks_text(without));
  if (by_size.size() > 1) {
    std::vector<std::string> sizes;
    for (const auto& [bytes, ranks] : by_size) sizes.push_back(fmt::format("{} bytes on {}", bytes, ranks_text(ranks)));
    return refuse(fmt::format("the size is {}; register as much on all ranks", fmt::join(sizes, " and ")));
  }
  if (claims.front().bytes == 0) return refuse("0 bytes; leave the call out, on all ranks");
  return {};
}

bool RegisteredBuffer::overlaps(const void* begin, uint64_t length) const {
  return address(begin) < own + bytes && own < address(begin) + length;
}

void Registrations::add(RegisteredBuffer buffer) {
  const auto place =
      std::upper_bound(buffers_.begin(), buffers_.end(), buffer.own,
                       [](const uint8_t* own, const RegisteredBuffer& other) { return own < other.own; });
  buffers_.insert(place, std::move(buffer));
}

void Registrations::end(uint64_t number) {
  std::erase_if(buffers_, [&](const RegisteredBuffer& buffer) { return buffer.number == number; });
}

const RegisteredBuffer* Registrations::find(const void* begin, uint64_t bytes) const {
  const auto after =
      std::upper_bound(buffers_.begin(), buffers_.end(), address(begin),
                       [](const uint8_t* own, const RegisteredBuffer& other) { return own < other.own; });
  if (after == buffers_.begin()) return nullptr;
  const RegisteredBuffer& buffer = *std::prev(after);
  const auto offset = static_cast<uint64_t>(address(begin) - buffer.own);
  return offset < buffer.bytes && bytes <= buffer.bytes - offset ? &buffer : nullptr;
}

const RegisteredBuffer* Registrations::overlapping(const void* begin, uint64_t bytes) const {
  const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                  [&](const RegisteredBuffer& buffer) { return buffer.overlaps(begin, bytes); });
  return found == buffers_.end() ? nullptr : &*found;
}

bool has_registrable_output(Collective collective) {
  return collective != Collective::kReduceScatter && output_blocks_everywhere(collective, 1) > 0;
}

uint64_t registrable_output_bytes(const Call& call, int size) {
  if (!has_registrable_output(call.collective)) return 0;
  return call.count * size_of(call.type) * output_blocks_everywhere(call.collective, size);
}

uint32_t place_of(uint64_t number, uint64_t offset) {
  uint64_t hash = (number * 0x9e3779b97f4a7c15u ^ offset) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ hash >> 29) * 0x94d049bb133111ebu;
  return std::max(static_cast<uint32_t>(hash >> 32), 1u);
}

}  // namespace tutti::backend
