// SPDX-License-Identifier: Apache-2.0
// Reduction and copy on the host, vectorised. A static library linked into each protocol plugin: it exports nothing and
// depends on nothing but the C library. Every instruction set gives the same bits, but for the payload of NaNs.
//
// Threads: any thread. Calls of several threads must not write the same destination.
// Units: `count` in elements.
// Errors: none. A null function states that there is none for the type and operation.
#pragma once

#include <cstdint>

namespace tutti::device {

/// One fused pass: value[i] = final(fold(op, source_0[i], source_1[i], ...)), written to every destination.
/// Pointers need no alignment. A destination may be exactly one of the sources, but may not overlap one otherwise.
struct ReduceCall {
  const void* const* sources;  ///< folded in this order; the accumulator stays wide and is rounded once at the end
  uint32_t source_count;       ///< 1 or more; one source with no scaling and no divisor is copied bit for bit
  uint32_t destination_count;
  void* const* destinations;  ///< each receives the same value
  uint64_t count;             ///< elements
  uint64_t scalar;            ///< bits of one element, in the low bytes
  int32_t scaled_source;      ///< index of the source multiplied by `scalar` first, rounded to the type (pre-multiplied
                              ///< sum), or -1
  uint32_t divisor;           ///< average: the sum is divided by this at the end; 0 is for "not"
  bool streaming = false;     ///< hint: destinations go around the caches; for large output that is not read soon
  // The scalings belong to sum, average and pre-multiplied sum; the other operators ignore them.
};
using ReduceFunction = void (*)(const ReduceCall&);

/// Instruction sets for which the kernels are compiled. All sets but kBaseline are for x86-64.
enum class InstructionSet : uint32_t { kBaseline, kAvx2, kAvx512 };

/// The best one this CPU has, and its name: "baseline", "avx2" or "avx512".
InstructionSet best_instruction_set();
const char* to_string(InstructionSet set);

/// The function for a TUTTI_* data type and reduction on this CPU; null if either is unknown. Look it up once: it is
/// made to be called for a few elements as well as for many. Thread-safe, as are the functions.
ReduceFunction select_reduce(uint32_t data_type, uint32_t reduce_op);
/// The same for a given instruction set; null if this CPU or this build lacks it.
ReduceFunction select_reduce_for(InstructionSet set, uint32_t data_type, uint32_t reduce_op);

/// Copies bytes; the two ranges are the same or do not overlap. The C library's memcpy, which streams very large copies
/// by itself.
void copy(void* destination, const void* source, uint64_t bytes);

}  // namespace tutti::device
