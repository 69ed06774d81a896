// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/departure.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::bootstrap {
namespace {

template <class T>
Bytes bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return Bytes(bytes.begin(), bytes.end());
}

/// kInvalidArgument unless the bytes are whole values of T.
template <class T>
Result<std::vector<T>> values_of(const Bytes& bytes) {
  if (bytes.size() % sizeof(T) != 0) return Status(Code::kInvalidArgument, "a rank's last words are cut off");
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Result<std::vector<Bytes>> unpack_parts(std::span<const std::byte> bytes, size_t count) {
  TUTTI_ASSIGN(std::vector<Bytes> parts, unpack(bytes));
  if (parts.size() != count) return Status(Code::kInvalidArgument, "a rank's last words have a wrong number of parts");
  return parts;
}

Result<std::vector<uint64_t>> counts_of(const Bytes& bytes, size_t count) {
  TUTTI_ASSIGN(std::vector<uint64_t> counts, values_of<uint64_t>(bytes));
  if (counts.size() != count)
    return Status(Code::kInvalidArgument, "a rank's last words have a wrong number of counts");
  return counts;
}

}  // namespace

Departure departure_for(const Ending& ending, int rank, int peer) {
  Departure departure{rank, ending.collectives, 0, 0, ending.did, ending.calls};
  const auto found = std::lower_bound(ending.traffic.begin(), ending.traffic.end(), peer,
                                      [](const Ending::Traffic& entry, int wanted) { return entry.peer < wanted; });
  if (found == ending.traffic.end() || found->peer != peer) return departure;
  departure.sent = found->sent;
  departure.received = found->received;
  return departure;
}

Bytes encode(const Ending& ending) {
  const std::array<Bytes, 4> parts = {bytes_of(std::span(&ending.collectives, 1)), to_bytes(ending.did),
                                      bytes_of(std::span<const Ending::Traffic>(ending.traffic)), ending.calls};
  return pack(parts);
}

Result<Ending> decode_ending(std::span<const std::byte> bytes) {
  TUTTI_ASSIGN(const std::vector<Bytes> parts, unpack_parts(bytes, 4));
  TUTTI_ASSIGN(const std::vector<uint64_t> counts, counts_of(parts[0], 1));
  Ending ending{counts[0], to_text(parts[1]), {}, parts[3]};
  TUTTI_ASSIGN(ending.traffic, values_of<Ending::Traffic>(parts[2]));
  return ending;
}

Bytes encode(const Departure& departure) {
  const std::array<uint64_t, 3> counts = {departure.collectives, departure.sent, departure.received};
  const std::array<Bytes, 3> parts = {bytes_of(std::span<const uint64_t>(counts)), to_bytes(departure.did),
                                      departure.calls};
  return pack(parts);
}

Result<Departure> decode_departure(int rank, std::span<const std::byte> bytes) {
  TUTTI_ASSIGN(const std::vector<Bytes> parts, unpack_parts(bytes, 3));
  TUTTI_ASSIGN(const std::vector<uint64_t> counts, counts_of(parts[0], 3));
  return Departure{rank, counts[0], counts[1], counts[2], to_text(parts[1]), parts[2]};
}

}  // namespace tutti::bootstrap
