// SPDX-License-Identifier: Apache-2.0
#include "tools/check/reference.h"

#include <algorithm>
#include <cstring>

#include "tools/check/element.h"
#include "tools/check/random_input.h"

namespace tutti::check {
namespace {

constexpr size_t kBatch = 4096;

/// Sums and products of double need more than double to be compared with.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, long double, double>;

bool is_ordering(ReduceOp op) {
  return op == ReduceOp::kMax || op == ReduceOp::kMin;
}

/// Elements of a batch, and room for the inputs of one rank.
template <class T>
struct Batch {
  const Problem& problem;
  size_t first;
  size_t count;
  std::vector<T> input = std::vector<T>(kBatch);

  template <class Fold>
  void for_each_rank(Fold&& fold) {
    for (int rank = 0; rank < problem.rank_count; ++rank) {
      fill_input(problem, rank, first, count, input.data());
      for (size_t i = 0; i < count; ++i) fold(rank, i, input[i]);
    }
  }
};

/// Integers, modulo 2^64; results of narrower types are truncated at the end.
template <class T>
void fold_integers(Batch<T> batch, T* results) {
  const ReduceOp op = batch.problem.op;
  std::vector<uint64_t> folded(batch.count);
  batch.for_each_rank([&](int rank, size_t i, T element) {
    const auto term = static_cast<uint64_t>(static_cast<int64_t>(element));
    if (rank == 0 && op != ReduceOp::kPreMulSum) {
      folded[i] = term;
    } else if (op == ReduceOp::kProd) {
      folded[i] *= term;
    } else if (is_ordering(op)) {
      const bool larger = element > static_cast<T>(folded[i]);
      if (larger == (op == ReduceOp::kMax)) folded[i] = term;
    } else if (op == ReduceOp::kPreMulSum) {
      folded[i] += term * static_cast<uint64_t>(static_cast<int64_t>(pre_mul_factor(batch.problem.type, rank)));
    } else {
      folded[i] += term;
    }
  });
  for (size_t i = 0; i < batch.count; ++i) {
    results[i] = static_cast<T>(folded[i]);
    if (op == ReduceOp::kAvg) results[i] = static_cast<T>(results[i] / static_cast<T>(batch.problem.rank_count));
  }
}

/// Max and min of floats: -0 is less than +0.
template <class T>
void order_floats(Batch<T> batch, T* results) {
  const bool wants_larger = batch.problem.op == ReduceOp::kMax;
  batch.for_each_rank([&](int rank, size_t i, T element) {
    const double value = value_of(element);
    const double best = value_of(results[i]);
    const bool larger = value > best || (value == best && std::signbit(best) && !std::signbit(value));
    const bool smaller = value < best || (value == best && std::signbit(value) && !std::signbit(best));
    if (rank == 0 || (wants_larger ? larger : smaller)) results[i] = element;
  });
}

/// How far a result may be from the right value, given the sum of the magnitudes of its terms.
template <class T>
double bound_of(const Problem& problem, double value, double magnitude) {
  const double unit_roundoff = std::ldexp(1, -significand_bits<T>());
  const bool exact_terms = problem.op == ReduceOp::kProd || problem.rank_count * unit_roundoff <= 1;
  if (sizeof(T) == 1 && exact_terms) return problem.op == ReduceOp::kAvg ? unit_roundoff * std::abs(value) : 0;
  return (problem.rank_count + 2) * (unit_roundoff * magnitude + smallest_value<T>() / 2);
}

template <class T>
void fold_floats(Batch<T> batch, double* values, double* bounds) {
  const Problem& problem = batch.problem;
  const bool product = problem.op == ReduceOp::kProd;
  std::vector<Wide<T>> folded(batch.count, product ? 1 : 0);
  std::vector<double> magnitudes(batch.count);
  batch.for_each_rank([&](int rank, size_t i, T element) {
    const Wide<T> factor = problem.op == ReduceOp::kPreMulSum ? pre_mul_factor(problem.type, rank) : 1;
    const Wide<T> term = factor * value_of(element);
    folded[i] = product ? folded[i] * term : folded[i] + term;
    magnitudes[i] += static_cast<double>(std::abs(term));
  });
  const double divisor = problem.op == ReduceOp::kAvg ? problem.rank_count : 1;
  for (size_t i = 0; i < batch.count; ++i) {
    values[i] = static_cast<double>(folded[i] / divisor);
    bounds[i] = bound_of<T>(problem, values[i], product ? std::abs(values[i]) : magnitudes[i] / divisor);
  }
}

}  // namespace

Reference::Reference(const Problem& problem, size_t first, size_t count) : first_(first), count_(count) {
  with_element(problem.type, [&]<class T>(T) {
    const bool exact = std::is_integral_v<T> || is_ordering(problem.op);
    exact_.resize(exact ? count * sizeof(T) : 0);
    values_.resize(exact ? 0 : count);
    bounds_.resize(exact ? 0 : count);
    for (size_t done = 0; done < count; done += kBatch) {
      Batch<T> batch{problem, first + done, std::min(kBatch, count - done)};
      auto* results = reinterpret_cast<T*>(exact_.data()) + (exact ? done : 0);
      if constexpr (std::is_integral_v<T>) {
        fold_integers(std::move(batch), results);
      } else if (exact) {
        order_floats(std::move(batch), results);
      } else {
        fold_floats(std::move(batch), values_.data() + done, bounds_.data() + done);
      }
    }
  });
}

Reference Reference::for_rank(const Problem& problem, int rank) {
  const bool scattered = problem.collective == Collective::kReduceScatter;
  const size_t count = reduces(problem.collective) ? output_elements(problem, rank) : 0;
  return Reference(problem, scattered ? problem.count * static_cast<size_t>(rank) : 0, count);
}

Reference Reference::for_all(const Problem& problem) {
  return Reference(problem, 0, reduces(problem.collective) ? input_elements(problem, 0) : 0);
}

}  // namespace tutti::check
