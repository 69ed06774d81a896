// SPDX-License-Identifier: Apache-2.0
#include "integration/matrix/cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <set>

#include "tutti/plugin/cuda.h"

namespace tutti::matrix {
namespace {

enum Dimension {
  kRanks,
  kCollective,
  kType,
  kOp,
  kCount,
  kRoot,
  kAlgorithm,
  kProtocol,
  kReach,
  kInPlace,
  kRegistered,
  kDimensions
};
/// One value of each dimension, as an index.
using Point = std::array<uint32_t, kDimensions>;

constexpr uint32_t kAllToAllV = kCollectiveCount;  // one more than the collectives: all_to_all, uneven
constexpr std::array<size_t, 8> kCounts = {0, 1, 2, 3, 17, 1000, 4097, (1 << 20) + 3};
constexpr size_t kLargeCount = 1 << 16;

struct Algorithm {
  const char* name;
  uint64_t collectives;
};
constexpr uint64_t bits(std::initializer_list<Collective> collectives) {
  uint64_t bits = 0;
  for (const Collective collective : collectives) bits |= uint64_t{1} << static_cast<uint32_t>(collective);
  return bits;
}
constexpr uint64_t kReducing = bits({Collective::kAllReduce, Collective::kReduceScatter, Collective::kReduce});
constexpr uint64_t kMoving =
    bits({Collective::kAllGather, Collective::kAllToAll, Collective::kGather, Collective::kScatter});
constexpr std::array<Algorithm, 13> kAlgorithms = {{
    {"ring", kReducing | bits({Collective::kAllGather, Collective::kBroadcast})},
    {"tree/direct", bits({Collective::kAllReduce, Collective::kBroadcast, Collective::kReduce})},
    {"tree/pipelined", bits({Collective::kAllReduce})},
    {"direct/one-shot", kReducing | kMoving | bits({Collective::kBroadcast})},
    {"direct/two-shot", bits({Collective::kAllReduce})},
    {"direct/shifted", kMoving},
    {"hier/exchange", kReducing | bits({Collective::kAllGather, Collective::kBroadcast, Collective::kAllToAll})},
    {"hier/doubling", bits({Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather})},
    {"hier/ring", bits({Collective::kAllReduce})},
    {"hier/tree", bits({Collective::kAllReduce})},
    {"hier/bruck", bits({Collective::kAllToAll, Collective::kReduceScatter, Collective::kAllGather})},
    {"hier/multiplying", bits({Collective::kAllReduce})},
    {"hier/binomial", bits({Collective::kBroadcast, Collective::kReduce})},
}};
constexpr std::array<const char*, 4> kProtocols = {"simple", "ll", "ll128", "copy"};  // the last two on GPUs only
/// The collectives of `copy`, if every message is one hop.
constexpr uint64_t kCopied =
    bits({Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast, Collective::kScatter});

/// The values of the dimensions that a selection allows.
struct Space {
  std::vector<int> rank_counts = {1, 2, 3, 4, 5, 8};
  std::vector<size_t> counts;
  std::vector<Reach> reaches = {Reach::kOneHost, Reach::kOwnHosts, Reach::kHosts};
  uint32_t protocols = 2;
  uint32_t registrations = 1;
  int host_count;

  explicit Space(const Selection& selection) : host_count(selection.host_count) {
    if (selection.gpus) {
      reaches = {Reach::kGpus, Reach::kGraphs};
      protocols = kProtocols.size();
      registrations = 2;
    }
    if (selection.network) {
      reaches = {Reach::kOwnHosts, Reach::kHosts};
      std::erase(rank_counts, 1);
    }
    if (!selection.rank_counts.empty()) rank_counts = selection.rank_counts;
    std::copy_if(kCounts.begin(), kCounts.end(), std::back_inserter(counts),
                 [&](size_t count) { return count <= selection.max_count; });
  }

  uint32_t size(uint32_t dimension) const {
    switch (dimension) {
      case kRanks:
        return static_cast<uint32_t>(rank_counts.size());
      case kCollective:
        return kCollectiveCount + 1;
      case kType:
        return kDataTypeCount;
      case kOp:
        return kReduceOpCount;
      case kCount:
        return static_cast<uint32_t>(counts.size());
      case kAlgorithm:
        return kAlgorithms.size();
      case kProtocol:
        return protocols;
      case kReach:
        return static_cast<uint32_t>(reaches.size());
      case kRegistered:
        return registrations;
      default:
        return 2;
    }
  }

  Case at(const Point& point) const {
    Case one{};
    check::Problem& problem = one.problem;
    problem.uneven = point[kCollective] == kAllToAllV;
    problem.collective = problem.uneven ? Collective::kAllToAll : static_cast<Collective>(point[kCollective]);
    problem.type = static_cast<DataType>(point[kType]);
    problem.op = static_cast<ReduceOp>(point[kOp]);
    problem.rank_count = rank_counts[point[kRanks]];
    problem.root = point[kRoot] == 0 ? 0 : problem.rank_count - 1;
    problem.count = counts[point[kCount]];
    if (problem.count >= kLargeCount && check::has_blocks(problem.collective)) {
      problem.count /= static_cast<size_t>(problem.rank_count);
    }
    one.setting = {kAlgorithms[point[kAlgorithm]].name, kProtocols[point[kProtocol]], reaches[point[kReach]],
                   point[kRegistered] == 1, host_count};
    one.in_place = point[kInPlace] == 1;
    return one;
  }
};

/// Outputs must lie at the same place on all ranks. The outputs of a scatter in place do not, unless the root is the
/// first rank. Sends need no registered buffers, and have no copies.
bool can_be_registered(const Case& one) {
  const Collective collective = one.problem.collective;
  if (one.setting.registered && one.in_place && collective == Collective::kScatter && one.problem.root != 0) {
    return false;
  }
  if (one.setting.protocol != kProtocols.back()) return true;
  return one.setting.registered && collective != Collective::kSendRecv && !one.problem.uneven;
}

/// Combinations that exist: an argument that a collective does not have keeps its first value.
bool exists(const Space& space, const Point& point) {
  const Case one = space.at(point);
  if (!check::reduces(one.problem.collective) && point[kOp] != 0) return false;
  if (!check::has_root(one.problem.collective) && point[kRoot] != 0) return false;
  if (one.in_place && !check::in_place(one.problem, 0)) return false;
  if (!can_be_registered(one)) return false;
  if (one.setting.reach == Reach::kOwnHosts) return one.problem.rank_count > 1;
  return one.setting.reach != Reach::kHosts || one.problem.rank_count > one.setting.host_count;
}

std::vector<Point> every_point(const Space& space) {
  std::vector<Point> points;
  Point point{};
  for (;;) {
    if (exists(space, point)) points.push_back(point);
    uint32_t dimension = kDimensions;
    do {
      if (dimension == 0) return points;
      --dimension;
      point[dimension] = (point[dimension] + 1) % space.size(dimension);
    } while (point[dimension] == 0);
  }
}

/// A pair of values of two dimensions.
using Pair = std::array<uint32_t, 4>;

template <class Visit>
void for_each_pair(const Point& point, Visit&& visit) {
  for (uint32_t a = 0; a < kDimensions; ++a) {
    for (uint32_t b = a + 1; b < kDimensions; ++b) visit(Pair{a, point[a], b, point[b]});
  }
}

/// Whether a point is more than a request for a choice that does not exist. Sends run without an algorithm.
bool runs(const Space& space, const Point& point) {
  const Case one = space.at(point);
  return offers(one.setting, one.problem.collective, one.problem.rank_count) ||
         one.problem.collective == Collective::kSendRecv || one.problem.uneven;
}

/// A few points that contain every pair of values that occurs at all: of random points, it repeatedly takes the point
/// with the most new pairs (greedy, as in Cohen et al., "The AETG system", 1997).
std::vector<Point> pairwise_points(const Space& space, uint64_t seed) {
  constexpr int kCandidates = 200;
  constexpr int kPatience = 50;  // rounds in which random points brought nothing new
  std::mt19937_64 random(seed);
  const auto random_point = [&] {
    for (Point point;;) {
      for (uint32_t d = 0; d < kDimensions; ++d) {
        point[d] = space.size(d) > 1 ? static_cast<uint32_t>(random() % space.size(d)) : 0;
      }
      if (exists(space, point) && runs(space, point)) return point;
    }
  };
  std::set<Pair> covered;
  std::vector<Point> points;
  for (int fruitless = 0; fruitless < kPatience;) {
    Point best{};
    int most = 0;
    for (int i = 0; i < kCandidates; ++i) {
      const Point point = random_point();
      int fresh = 0;
      for_each_pair(point, [&](const Pair& pair) { fresh += covered.count(pair) == 0 ? 1 : 0; });
      if (fresh > most) {
        most = fresh;
        best = point;
      }
    }
    fruitless = most == 0 ? fruitless + 1 : 0;
    if (most == 0) continue;
    for_each_pair(best, [&](const Pair& pair) { covered.insert(pair); });
    points.push_back(best);
  }
  std::sort(points.begin(), points.end());
  return points;
}

}  // namespace

Options options(const Setting& setting, int rank, int rank_count) {
  Options options;
  options.settings = {{"algorithm", setting.algorithm}, {"protocol", setting.protocol}};
  if (on_gpus(setting.reach)) {
    options.settings.emplace_back("device", "cuda");
    return options;
  }
  const int host = setting.reach == Reach::kOwnHosts ? rank : setting.host_count * rank / rank_count;
  options.settings.emplace_back("host", fmt::format("host{}", setting.reach == Reach::kOneHost ? 0 : host));
  return options;
}

/// Whether a variant of `hier` has a schedule for this number of machines.
bool fits_machines(const std::string& algorithm, Collective collective, unsigned machines) {
  const bool moves_lists = collective == Collective::kAllGather || collective == Collective::kReduceScatter;
  if (algorithm == "hier/doubling") return moves_lists ? machines >= 4 && std::has_single_bit(machines) : machines >= 3;
  if (algorithm == "hier/bruck") return machines >= (moves_lists ? 3 : 4);
  if (algorithm == "hier/binomial") return machines >= 4;
  if (algorithm == "hier/multiplying") return machines >= 5;
  return machines >= (algorithm == "hier/exchange" ? 2 : 3);
}

/// Whether the ranks form the hierarchy that a variant of `hier` needs.
bool has_hierarchy(const Setting& setting, Collective collective, int rank_count) {
  if (setting.reach != Reach::kOwnHosts && setting.reach != Reach::kHosts) return false;
  const int machines = setting.reach == Reach::kOwnHosts ? rank_count : setting.host_count;
  if (rank_count % machines != 0) return false;
  const std::string& name = setting.algorithm;
  const bool needs_several = name == "hier/exchange" || name == "hier/ring" || name == "hier/tree";
  if (needs_several && rank_count == machines) return false;
  return fits_machines(name, collective, static_cast<unsigned>(machines));
}

bool offers(const Setting& setting, Collective collective, int rank_count) {
  const bool copies = setting.protocol == kProtocols.back();
  if (copies && (setting.algorithm.find("direct/") != 0 || (kCopied & bits({collective})) == 0)) return false;
  const bool on_gpus = setting.reach == Reach::kGpus || setting.reach == Reach::kGraphs;
  if (on_gpus && rank_count > static_cast<int>(TUTTI_CUDA_SMALL_RANKS)) {
    // The root of a tree on one host has a connection to each rank for each of 8 chunks, in both directions.
    const bool is_wide = setting.algorithm == "tree/pipelined" && collective == Collective::kAllReduce;
    if (copies || is_wide) return false;
  }
  if (setting.algorithm.starts_with("hier/") && !has_hierarchy(setting, collective, rank_count)) return false;
  for (const Algorithm& known : kAlgorithms) {
    if (known.name == setting.algorithm) return (known.collectives & bits({collective})) != 0;
  }
  return false;
}

std::string to_string(const Setting& setting) {
  constexpr std::array<const char*, 5> kReaches = {"one host", "own hosts", "hosts", "GPUs", "graphs"};
  const std::string number = setting.reach == Reach::kHosts ? fmt::format("{} ", setting.host_count) : "";
  return fmt::format("{}/{}/{}{}{}", setting.algorithm, setting.protocol, number,
                     kReaches[static_cast<size_t>(setting.reach)], setting.registered ? ", registered" : "");
}

std::string to_string(const Case& one) {
  return fmt::format("{}, {}, {}", to_string(one.problem), one.in_place ? "in place" : "out of place",
                     to_string(one.setting));
}

std::vector<Case> cases(const Selection& selection) {
  const Space space(selection);
  const auto points = selection.full ? every_point(space) : pairwise_points(space, selection.seed);
  std::vector<Case> cases;
  uint64_t seed = selection.seed << 32;
  for (size_t i = 0; i < points.size(); ++i) {
    Case one = space.at(points[i]);
    const bool same_problem =
        i > 0 && std::equal(points[i].begin(), points[i].begin() + kAlgorithm, points[i - 1].begin());
    one.problem.seed = same_problem ? seed : ++seed;
    if (to_string(one).find(selection.filter) != std::string::npos) cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace tutti::matrix
