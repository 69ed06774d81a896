// SPDX-License-Identifier: Apache-2.0
// Registered buffers: refusals, and lookups.
#include "backend/registrations.h"

#include <gmock/gmock.h>

#include <set>

namespace tutti::backend {
namespace {

using testing::HasSubstr;

const void* at(uintptr_t address) {
  return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

RegisteredBuffer buffer(uint64_t number, uintptr_t begin, uint64_t bytes) {
  RegisteredBuffer buffer;
  buffer.number = number;
  buffer.own = static_cast<const uint8_t*>(at(begin));
  buffer.bytes = bytes;
  return buffer;
}

uint64_t found(const Registrations& all, uintptr_t begin, uint64_t bytes) {
  const RegisteredBuffer* const one = all.find(at(begin), bytes);
  return one == nullptr ? 0 : one->number;
}

TEST(Claims, that_agree_are_good) {
  const std::vector<Claim> claims = {{64, 0}, {64, 0}};
  EXPECT_TRUE(check_claims(claims).ok());
}

TEST(Claims, that_differ_name_ranks_and_sizes) {
  const std::vector<Claim> claims = {{64, 0}, {32, 0}, {64, 0}};
  const Status status = check_claims(claims);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.text()), HasSubstr("32 bytes on rank 1 and 64 bytes on ranks 0,2"));
}

TEST(Claims, of_nothing_are_refused) {
  EXPECT_THAT(std::string(check_claims(std::vector<Claim>{{8, 0}, {8, 1}}).text()), HasSubstr("null on rank 1"));
  EXPECT_THAT(std::string(check_claims(std::vector<Claim>{{0, 0}, {0, 0}}).text()), HasSubstr("0 bytes"));
}

TEST(Registrations, finds_what_lies_wholly_in_one) {
  Registrations all;
  EXPECT_TRUE(all.empty());
  EXPECT_EQ(found(all, 1000, 1), 0u);
  all.add(buffer(1, 3000, 100));
  all.add(buffer(2, 1000, 100));
  all.add(buffer(3, 2000, 1000));
  EXPECT_EQ(found(all, 1000, 100), 2u);
  EXPECT_EQ(found(all, 1099, 1), 2u);
  EXPECT_EQ(found(all, 1099, 2), 0u);
  EXPECT_EQ(found(all, 1100, 1), 0u);
  EXPECT_EQ(found(all, 999, 2), 0u);
  EXPECT_EQ(found(all, 2500, 500), 3u);
  EXPECT_EQ(found(all, 2500, 501), 0u);  // continues in the next buffer, but lies in neither
  EXPECT_EQ(found(all, 3099, ~uint64_t{0}), 0u);
  all.end(3);
  EXPECT_EQ(found(all, 2500, 500), 0u);
  EXPECT_EQ(found(all, 3000, 1), 1u);
}

TEST(Registrations, finds_overlaps) {
  Registrations all;
  all.add(buffer(1, 1000, 100));
  EXPECT_EQ(all.overlapping(at(900), 100), nullptr);
  EXPECT_NE(all.overlapping(at(900), 101), nullptr);
  EXPECT_NE(all.overlapping(at(1050), 1), nullptr);
  EXPECT_NE(all.overlapping(at(1099), 1000), nullptr);
  EXPECT_EQ(all.overlapping(at(1100), 1000), nullptr);
}

TEST(Registrations, are_of_outputs_that_every_rank_has) {
  Call call{Collective::kAllGather, nullptr, nullptr, 10, DataType::kFloat32};
  EXPECT_EQ(registrable_output_bytes(call, 4), 160u);
  call.collective = Collective::kBroadcast;
  EXPECT_EQ(registrable_output_bytes(call, 4), 40u);
  for (const Collective of_one : {Collective::kGather, Collective::kReduce, Collective::kSendRecv}) {
    call.collective = of_one;
    EXPECT_EQ(registrable_output_bytes(call, 4), 0u);
  }
}

TEST(Registrations, tell_places_apart) {
  std::set<uint32_t> places;
  for (uint64_t number = 1; number < 20; ++number) {
    for (uint64_t offset = 0; offset < 1000; ++offset) places.insert(place_of(number, offset * 512));
  }
  EXPECT_GT(places.size(), 18990u);  // among 19000 random places, two equal places are rare
}

}  // namespace
}  // namespace tutti::backend
