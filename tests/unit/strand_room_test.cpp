// SPDX-License-Identifier: Apache-2.0
// Ranks agree on the strands that all their GPUs hold.
#include "backend/cuda/strand_room.h"

#include <gmock/gmock.h>

#include "unit/bootstrap_group.h"
#include "unit/required.h"

namespace tutti::backend {
namespace {

using testing::ElementsAre;

/// A protocol whose GPU holds so many CTAs, and the result of its function.
struct Room {
  uint32_t ctas;
  int32_t code = TUTTI_OK;

  static int32_t strand_ctas(void* self, uint32_t* ctas) {
    const Room& room = *static_cast<Room*>(self);
    *ctas = room.ctas;
    return room.code;
  }
  tuner::Protocol protocol(bool strands = true, uint32_t devices = TUTTI_DEVICE_HOST | TUTTI_DEVICE_CUDA) {
    static constexpr tutti_protocol_ops kOps{
        sizeof(tutti_protocol_ops), 0, nullptr, nullptr, nullptr, nullptr, strand_ctas};
    tuner::Protocol made{"room", &kOps, this, {}, {}};
    made.properties.strands = strands ? 1 : 0;
    made.properties.devices = devices;
    return made;
  }
};

/// The agreement of all ranks if the GPU of rank i holds `rooms[i]`.
std::vector<std::vector<uint32_t>> agree(std::vector<Room> rooms, uint32_t ranks_per_gpu, uint32_t most) {
  const UniqueId id = bootstrap::make_id();
  std::vector<std::vector<uint32_t>> agreed(rooms.size());
  bootstrap::in_ranks(static_cast<int>(rooms.size()), [&](int rank) {
    auto bootstrap =
        test::required(bootstrap::Bootstrap::join(id, rank, static_cast<int>(rooms.size()), bootstrap::soon()));
    Room& room = rooms[static_cast<size_t>(rank)];
    tuner::Protocol old = room.protocol();
    static constexpr tutti_protocol_ops kOld{
        sizeof(tutti_protocol_ops), 0, nullptr, nullptr, nullptr, nullptr, nullptr};
    old.ops = &kOld;
    const std::vector<tuner::Protocol> protocols = {room.protocol(), room.protocol(false),
                                                    room.protocol(true, TUTTI_DEVICE_HOST), old};
    agreed[static_cast<size_t>(rank)] =
        test::required(agree_on_strand_ctas(protocols, ranks_per_gpu, most, *bootstrap, bootstrap::soon()));
  });
  return agreed;
}

TEST(StrandRoom, IsThatOfTheSmallestGpu) {
  for (const auto& agreed : agree({{64}, {14}, {30}}, 1, 64)) EXPECT_THAT(agreed, ElementsAre(14, 0, 0, 0));
}

TEST(StrandRoom, IsDividedByTheRanksOfAGpu) {
  for (const auto& agreed : agree({{64}, {30}}, 4, 64)) EXPECT_THAT(agreed, ElementsAre(7, 0, 0, 0));
}

TEST(StrandRoom, IsAtMostThatOfALaunch) {
  for (const auto& agreed : agree({{64}, {60}}, 1, 32)) EXPECT_THAT(agreed, ElementsAre(32, 0, 0, 0));
}

TEST(StrandRoom, NamesTheProtocolThatFails) {
  auto bootstrap = test::required(bootstrap::Bootstrap::join(bootstrap::make_id(), 0, 1, bootstrap::soon()));
  Room room{64, TUTTI_DEVICE};
  const Status failed = agree_on_strand_ctas({room.protocol()}, 1, 64, *bootstrap, bootstrap::soon()).status();
  EXPECT_EQ(failed.code(), Code::kDevice);
  EXPECT_THAT(std::string(failed.text()), testing::HasSubstr("kernels of protocol 'room' for strands"));
}

}  // namespace
}  // namespace tutti::backend
