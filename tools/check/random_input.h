// SPDX-License-Identifier: Apache-2.0
// Random inputs. Each element is a pure function of (seed, rank, index): any rank can make any part of any rank's
// input.
//
// Collectives that move data get random bits. Collectives that reduce get values for which the right result is well
// known and a wrong result shows:
//   integers          any bits; odd values for a product, whose low bits would all become zero otherwise
//   floats            sums: uniform in [-1, 1]; max and min: the same with some zeros of both signs;
//                     products: ±[1/2, 2], closer to 1 if more than 8 ranks take part
//   8-bit floats      sums: small integers, all of whose partial sums are exact (while there are enough of them for the
//                     number of ranks: up to 8 for E5M2, 16 for E4M3); products: ±1/2, ±1, ±2
#pragma once

#include "tools/check/problem.h"

namespace tutti::check {

/// A well-mixed function of 64 bits (splitmix64: Steele, Lea, Flood 2014).
constexpr uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

/// Elements first .. first + count - 1 of the input of `rank`.
void fill_input(const Problem& problem, int rank, size_t first, size_t count, void* input);

/// A byte that no right result is full of: an output is filled with it before a call.
inline constexpr int kPoison = 0xa5;
void poison(void* output, size_t bytes);

}  // namespace tutti::check
