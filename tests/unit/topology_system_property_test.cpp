// SPDX-License-Identifier: Apache-2.0
// Properties of every machine's system graph, on random machines: its paths are compared with the paths that an
// enumeration of all ways finds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "topology/system.h"
#include "unit/topology_machines.h"
#include "unit/topology_random.h"

namespace tutti::topology {
namespace {

class SystemProperty : public testing::Test {
 protected:
  SystemProperty() : seed_(std::random_device{}()), random_(seed_), trace_(__FILE__, __LINE__, seed_) {}

  System built(const Document& document, const BuildOptions& options = {}) {
    Result<System> system = System::build(document, options);
    EXPECT_TRUE(system.ok()) << system.status().to_string();
    return system.ok() ? *std::move(system) : System();
  }

  /// Calls check(document) for random machines until one fails.
  template <class Check>
  void for_machines(int count, test::Links links, Check&& check) {
    for (int round = 0; round < count && !HasFailure(); ++round) {
      SCOPED_TRACE(fmt::format("machine {}", round));
      check(test::random_machine(random_, links));
    }
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  testing::ScopedTrace trace_;
};

/// Identifies a GPU, host rank, port ... in every system of one document.
using Identity = std::tuple<uint32_t, uint64_t, uint32_t, std::string>;
Identity identity(const System& system, uint32_t node) {
  const tutti_system_node& entry = system.nodes()[node];
  return {entry.type, entry.id, entry.index, entry.type == TUTTI_NODE_GPU ? "" : system.name(node)};
}

std::string text(const System& system, uint32_t from, uint32_t to) {
  std::string text = fmt::format("{} {}", path_name(system.path(from, to).type), system.name(from));
  if (system.path(from, to).type == TUTTI_PATH_DIS) return text + " and " + system.name(to);
  for (const uint32_t hop : system.hops(system.path(from, to))) text += ", " + system.name(system.links()[hop].to);
  return text;
}

/// The type of a path along this way, by the definition of the types.
uint32_t type_of_way(const System& system, std::span<const uint32_t> way) {
  const auto type = [&](uint32_t node) { return system.nodes()[node].type; };
  uint32_t worst = TUTTI_PATH_LOC;
  bool by_chip = false;
  for (size_t i = 0; i < way.size(); ++i) {
    const tutti_system_link& link = system.links()[way[i]];
    const bool at_cpu = type(link.from) == TUTTI_NODE_CPU || type(link.to) == TUTTI_NODE_CPU;
    const bool switches = type(link.from) == TUTTI_NODE_PCI && type(link.to) == TUTTI_NODE_PCI;
    const bool pci = link.type == TUTTI_WIRE_PCI || link.type == TUTTI_WIRE_LOC;
    uint32_t part = TUTTI_PATH_NVL;
    if (link.type == TUTTI_WIRE_C2C) part = TUTTI_PATH_C2C;
    if (link.type == TUTTI_WIRE_SYS) part = TUTTI_PATH_SYS;
    if (pci) part = at_cpu ? TUTTI_PATH_PHB : switches ? TUTTI_PATH_PXB : TUTTI_PATH_PIX;
    if (i > 0 && type(link.from) == TUTTI_NODE_CPU) part = std::max(part, TUTTI_PATH_PHB);
    if (i > 0 && type(link.from) == TUTTI_NODE_GPU) part = std::max(part, TUTTI_PATH_NVB);
    worst = std::max(worst, part);
    by_chip = by_chip || link.type == TUTTI_WIRE_C2C;
  }
  return worst == TUTTI_PATH_PHB && by_chip ? TUTTI_PATH_P2C : worst;
}

/// Finds the best way by going all of them.
class Enumeration {
 public:
  Enumeration(const System& system, uint32_t from, uint32_t to) : system_(system), to_(to), passed_{from} { go(); }

  size_t hop_count() const { return best_hops_; }
  double gbs() const { return best_gbs_; }
  uint32_t type() const { return best_type_; }

 private:
  uint32_t node_type(uint32_t node) const { return system_.nodes()[node].type; }

  void go() {
    if (passed_.back() == to_) return arrive();
    if (passed_.size() > best_hops_ || !may_leave()) return;
    for (uint32_t link = 0; link < system_.links().size(); ++link) {
      const tutti_system_link& next = system_.links()[link];
      if (next.from != passed_.back() || std::ranges::count(passed_, next.to) > 0) continue;
      passed_.push_back(next.to);
      way_.push_back(link);
      go();
      passed_.pop_back();
      way_.pop_back();
    }
  }

  /// A way does not pass leaves of the machine, and passes a GPU only between two GPUs; adapters are judged on arrival.
  bool may_leave() const {
    if (passed_.size() == 1) return true;
    const uint32_t here = node_type(passed_.back());
    if (here == TUTTI_NODE_GPU) {
      return passed_.size() == 2 && node_type(passed_[0]) == TUTTI_NODE_GPU && node_type(to_) == TUTTI_NODE_GPU;
    }
    return here != TUTTI_NODE_HOST && here != TUTTI_NODE_NET;
  }

  void arrive() {
    for (size_t i = 1; i + 1 < passed_.size(); ++i) {
      if (node_type(passed_[i]) == TUTTI_NODE_GPU && passed_.size() != 3) return;
      if (node_type(passed_[i]) != TUTTI_NODE_NIC) continue;
      if (node_type(passed_[i - 1]) != TUTTI_NODE_NET && node_type(passed_[i + 1]) != TUTTI_NODE_NET) return;
    }
    const size_t hops = way_.size();
    double gbs = 5000;
    for (const uint32_t link : way_) gbs = std::min(gbs, system_.links()[link].gbs);
    const uint32_t type = type_of_way(system_, way_);
    if (std::tuple(hops, -gbs, type) >= std::tuple(best_hops_, -best_gbs_, best_type_)) return;
    best_hops_ = hops;
    best_gbs_ = gbs;
    best_type_ = type;
  }

  const System& system_;
  const uint32_t to_;
  std::vector<uint32_t> passed_;
  std::vector<uint32_t> way_;
  size_t best_hops_ = SIZE_MAX - 1;
  double best_gbs_ = 0;
  uint32_t best_type_ = TUTTI_PATH_DIS;
};

bool gpu_and_port(const System& system, uint32_t from, uint32_t to) {
  const auto ends = std::minmax({system.nodes()[from].type, system.nodes()[to].type});
  return ends == std::pair(TUTTI_NODE_GPU, TUTTI_NODE_NET);
}

TEST_F(SystemProperty, LinksComeInPairs) {
  for_machines(200, test::Links::kAny, [&](const Document& document) {
    const System system = built(document);
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;
    for (uint32_t i = 0; i < system.links().size(); ++i) {
      const tutti_system_link& link = system.links()[i];
      EXPECT_TRUE(seen.emplace(link.from, link.to, link.type).second);
      EXPECT_GT(link.gbs, 0);
      EXPECT_NE(link.from, link.to);
      const tutti_system_link& reverse = system.links()[link.reverse];
      EXPECT_EQ(reverse.reverse, i);
      EXPECT_EQ(std::tuple(reverse.from, reverse.to, reverse.type), std::tuple(link.to, link.from, link.type));
      EXPECT_TRUE(link.type == TUTTI_WIRE_NVL || reverse.gbs == link.gbs);
    }
  });
}

TEST_F(SystemProperty, PathsAreWays) {
  for_machines(200, test::Links::kAny, [&](const Document& document) {
    const System system = built(document);
    for (uint32_t from = 0; from < system.nodes().size(); ++from) {
      for (uint32_t to = 0; to < system.nodes().size(); ++to) {
        const tutti_system_path& path = system.path(from, to);
        const auto hops = system.hops(path);
        uint32_t at = from;
        double gbs = 5000;
        for (const uint32_t hop : hops) {
          ASSERT_EQ(system.links()[hop].from, at) << text(system, from, to);
          at = system.links()[hop].to;
          gbs = std::min(gbs, system.links()[hop].gbs);
        }
        if (path.type == TUTTI_PATH_DIS) {
          EXPECT_TRUE(hops.empty() && path.gbs == 0);
          continue;
        }
        ASSERT_EQ(at, to) << text(system, from, to);
        EXPECT_EQ(path.gbs, gbs);
        EXPECT_EQ(path.type == TUTTI_PATH_LOC, from == to);
        if (gpu_and_port(system, from, to)) continue;  // they may be rerouted
        EXPECT_EQ(path.type, type_of_way(system, hops)) << text(system, from, to);
      }
    }
  });
}

TEST_F(SystemProperty, PathsAreTheBestWays) {
  for_machines(60, test::Links::kAny, [&](const Document& document) {
    const System system = built(document);
    for (uint32_t from = 0; from < system.nodes().size(); ++from) {
      for (uint32_t to = 0; to < system.nodes().size(); ++to) {
        const tutti_system_path& path = system.path(from, to);
        if (from == to || gpu_and_port(system, from, to)) continue;
        const Enumeration best(system, from, to);
        if (path.type == TUTTI_PATH_DIS) {
          EXPECT_EQ(best.gbs(), 0) << text(system, from, to);
          continue;
        }
        EXPECT_EQ(path.hop_count, best.hop_count()) << text(system, from, to);
        EXPECT_EQ(path.gbs, best.gbs()) << text(system, from, to);
        EXPECT_EQ(path.type, best.type()) << text(system, from, to);
      }
    }
  });
}

TEST_F(SystemProperty, PortsReachGpusByTheRules) {
  std::map<uint32_t, int> found;
  for_machines(300, test::Links::kAny, [&](const Document& document) {
    const System system = built(document);
    const auto gpus = system.nodes_of(TUTTI_NODE_GPU);
    for (const uint32_t net : system.nodes_of(TUTTI_NODE_NET)) {
      std::map<uint32_t, uint32_t> types;  // types of the ways that are not rerouted
      for (const uint32_t gpu : gpus) types[gpu] = Enumeration(system, gpu, net).type();
      const auto is_direct = [&](uint32_t gpu) {
        return (system.nodes()[gpu].flags & system.nodes()[net].flags & TUTTI_NODE_DIRECT) != 0 &&
               types[gpu] <= TUTTI_PATH_P2C;
      };
      for (const uint32_t gpu : gpus) {
        SCOPED_TRACE(text(system, gpu, net));
        const tutti_system_path& path = system.path(gpu, net);
        const auto hops = system.hops(path);
        const auto passes = [&](const auto& wanted) {
          return std::ranges::any_of(hops, [&](uint32_t hop) { return wanted(system.links()[hop].to); });
        };
        const auto relays = [&](uint32_t peer) {
          return peer != gpu && is_direct(peer) && system.path(gpu, peer).type == TUTTI_PATH_NVL;
        };
        ++found[path.type];
        EXPECT_EQ(system.path(net, gpu).type, path.type);
        if (is_direct(gpu)) {
          EXPECT_EQ(path.type, types[gpu]);
          EXPECT_EQ(path.type, type_of_way(system, hops));
        } else if (std::ranges::any_of(gpus, relays)) {
          EXPECT_EQ(path.type, TUTTI_PATH_PXN);
          EXPECT_TRUE(passes([&](uint32_t node) { return std::ranges::count(gpus, node) > 0 && relays(node); }));
        } else {
          EXPECT_EQ(path.type, std::max(type_of_way(system, hops), TUTTI_PATH_PHB));
          EXPECT_TRUE(passes([&](uint32_t node) { return system.nodes()[node].type == TUTTI_NODE_CPU; }));
          EXPECT_FALSE(passes([&](uint32_t node) { return system.nodes()[node].type == TUTTI_NODE_GPU; }));
        }
      }
    }
  });
  for (const uint32_t type :
       {TUTTI_PATH_PIX, TUTTI_PATH_PXB, TUTTI_PATH_P2C, TUTTI_PATH_PXN, TUTTI_PATH_PHB, TUTTI_PATH_SYS}) {
    EXPECT_GT(found[type], 0) << "the machines have no " << path_name(type);
  }
}

TEST_F(SystemProperty, SymmetricMachinesHaveSymmetricPaths) {
  for_machines(300, test::Links::kSymmetric, [&](const Document& document) {
    const System system = built(document);
    for (uint32_t from = 0; from < system.nodes().size(); ++from) {
      for (uint32_t to = 0; to < from; ++to) {
        const tutti_system_path& there = system.path(from, to);
        const tutti_system_path& back = system.path(to, from);
        EXPECT_EQ(there.type, back.type) << text(system, from, to) << "; " << text(system, to, from);
        EXPECT_EQ(there.hop_count, back.hop_count);
        EXPECT_EQ(there.gbs, back.gbs);
      }
    }
  });
}

template <class T>
std::string bytes(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

TEST_F(SystemProperty, OrderOfSiblingsPlaysNoPart) {
  for_machines(200, test::Links::kAny, [&](const Document& document) {
    const System system = built(document);
    const System other = built(test::shuffled(document, random_));
    ASSERT_EQ(system.nodes().size(), other.nodes().size());
    EXPECT_EQ(bytes(system.nodes()), bytes(other.nodes()));
    EXPECT_EQ(bytes(system.links()), bytes(other.links()));
    for (uint32_t from = 0; from < system.nodes().size(); ++from) {
      EXPECT_EQ(system.name(from), other.name(from));
      for (uint32_t to = 0; to < system.nodes().size(); ++to) {
        EXPECT_EQ(text(system, from, to), text(other, from, to));
      }
    }
  });
}

TEST_F(SystemProperty, TrimmingLeavesRanksAsTheyWere) {
  int trimmed_gpus = 0;
  int relays = 0;
  for_machines(300, test::Links::kAny, [&](const Document& document) {
    const System whole = built(document);
    BuildOptions options;
    options.networks = random_() % 2 == 0;
    for (const uint32_t gpu : whole.nodes_of(TUTTI_NODE_GPU)) {
      const auto rank = static_cast<uint32_t>(options.ranks.size());
      if (random_() % 3 == 0) options.ranks.push_back({rank, true, BusId{whole.nodes()[gpu].id}, -1});
    }
    const auto host_rank = static_cast<uint32_t>(options.ranks.size());
    if (host_rank == 0 || random_() % 4 == 0) options.ranks.push_back({host_rank, false, {}, -1});
    const System system = built(document, options);

    ASSERT_EQ(system.rank_nodes().size(), options.ranks.size());
    std::map<Identity, uint32_t> before;
    for (uint32_t node = 0; node < whole.nodes().size(); ++node) before[identity(whole, node)] = node;
    std::set<uint32_t> passed;
    for (const uint32_t from : system.rank_nodes()) {
      for (uint32_t to = 0; to < system.nodes().size(); ++to) {
        const tutti_system_path& path = system.path(from, to);
        const uint32_t type = system.nodes()[to].type;
        EXPECT_TRUE(path.type != TUTTI_PATH_DIS || type == TUTTI_NODE_NVS) << text(system, from, to);
        if (system.nodes()[to].rank == TUTTI_NO_RANK && type != TUTTI_NODE_NET) continue;
        for (const uint32_t hop : system.hops(path)) passed.insert(system.links()[hop].to);
        if (type != TUTTI_NODE_GPU || system.nodes()[from].type != TUTTI_NODE_GPU) continue;
        const tutti_system_path& old = whole.path(before.at(identity(system, from)), before.at(identity(system, to)));
        EXPECT_EQ(std::tuple(path.type, path.hop_count, path.gbs), std::tuple(old.type, old.hop_count, old.gbs));
      }
      for (const uint32_t net : system.nodes_of(TUTTI_NODE_NET)) {
        for (const uint32_t hop : system.hops(system.path(net, from))) passed.insert(system.links()[hop].to);
      }
    }
    const auto gpus = system.nodes_of(TUTTI_NODE_GPU);
    for (const uint32_t gpu : gpus) {
      if (system.nodes()[gpu].rank != TUTTI_NO_RANK) continue;
      EXPECT_TRUE(passed.contains(gpu)) << system.name(gpu) << " has no rank and no use";
      ++relays;
    }
    trimmed_gpus += gpus.size() < whole.nodes_of(TUTTI_NODE_GPU).size();
    EXPECT_EQ(system.nodes_of(TUTTI_NODE_NET).size(), options.networks ? whole.nodes_of(TUTTI_NODE_NET).size() : 0);
  });
  EXPECT_GT(trimmed_gpus, 0);
  EXPECT_GT(relays, 0);
}

}  // namespace
}  // namespace tutti::topology
