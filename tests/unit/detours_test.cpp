// SPDX-License-Identifier: Apache-2.0
// The paths of ranks to ports that lead through a second GPU.
#include "communicator/setup/detours.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "topology/document.h"
#include "unit/required.h"
#include "unit/topology_machines.h"

namespace tutti::communicator {
namespace {

using test::required;
using Found = std::tuple<uint32_t, uint32_t, std::string>;

std::vector<Found> found_in(const topology::System& system) {
  std::vector<Found> found;
  for (const Detour& detour : detours_of(system)) found.emplace_back(detour.rank, detour.port, detour.gpu.data());
  return found;
}

/// The addresses of a machine's GPUs, in PCI order.
std::vector<std::string> gpus_of(const topology::Document& document) {
  std::vector<std::string> gpus;
  for (const topology::BusId& gpu : document.gpus()) gpus.push_back(gpu.text());
  return gpus;
}

/// GPU i is beside port i, and NVSwitch joins all GPUs.
TEST(Detours, LeadThroughTheGpuNearThePort) {
  const topology::Document document = topology::test::hgx(4, 4);
  const std::vector<std::string> gpus = gpus_of(document);
  std::vector<Found> wanted;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    for (uint32_t port = 0; port < 4; ++port) {
      if (port != rank) wanted.emplace_back(rank, port, gpus[port]);
    }
  }
  EXPECT_THAT(found_in(required(topology::System::build(document))), testing::UnorderedElementsAreArray(wanted));
}

TEST(Detours, MayLeadThroughAGpuWithoutARank) {
  const topology::Document document = topology::test::hgx(2, 2);
  const std::vector<std::string> gpus = gpus_of(document);
  topology::BuildOptions options;
  options.ranks = {{.rank = 7, .on_gpu = true, .gpu = document.gpus()[0]}};
  EXPECT_THAT(found_in(required(topology::System::build(document, options))),
              testing::ElementsAre(Found(7, 1, gpus[1])));
}

TEST(Detours, NeedLinksBetweenGpus) {
  EXPECT_THAT(found_in(required(topology::System::build(topology::test::pcie(2, 2)))), testing::IsEmpty());
}

}  // namespace
}  // namespace tutti::communicator
