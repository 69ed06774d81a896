// SPDX-License-Identifier: Apache-2.0
// The tuner plugin: search sees the topology and the candidates, connect prepares tables, primitives ranks the
// candidates of a call.
#pragma once

#include "tutti/plugin/abi.h"
#include "tutti/plugin/algorithm.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One algorithm variant with one protocol, as the host could run it for the call at hand. */
typedef struct tutti_candidate {
  uint32_t struct_size;
  uint32_t max_channels;
  tutti_str algorithm; /* "ring" */
  tutti_str variant;   /* "two-shot"; empty where the algorithm has one variant */
  tutti_str protocol;  /* "simple" */
  tutti_algorithm_cost algorithm_cost;
  double protocol_latency_us[TUTTI_LINK_COUNT]; /* added to each hop */
  double protocol_efficiency[TUTTI_LINK_COUNT]; /* payload bytes / wire bytes, 0..1; 0: not valid on this link */
  double channel_gbs[TUTTI_LINK_COUNT];         /* GB/s of the wire that one channel can fill; 0: unknown */
  uint64_t channel_bytes[TUTTI_LINK_COUNT];     /* fewer bytes are not worth a channel of their own; 0: unknown */
  /* In: negative where the host has excluded it (rules, capabilities); a tuner leaves those alone.
     Out: predicted time of the call in µs; the smallest wins. Negative: the tuner excludes it and says why in `reason`.
   */
  double predicted_us;
  uint32_t channels; /* out: how many channels to use, 1..max_channels */
  uint32_t reserved;
  tutti_str reason; /* out, optional: static text, lives as long as the image */
} tutti_candidate;

typedef struct tutti_call {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t data_type;
  uint32_t reduce_op;
  uint64_t block_bytes; /* bytes of one block */
  uint64_t blocks;      /* blocks of the larger of the two buffers */
} tutti_call;

typedef struct tutti_tuner_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* search + connect: prepares for one communicator. The topology is borrowed for the call. [setup] */
  int32_t (*create)(void* self, const tutti_topology* topology, void** instance);
  void (*destroy)(void* instance);
  /* primitives: fills the outputs of every candidate. The same on every rank: it may depend on nothing but its
     arguments, its settings and its tables. [any] */
  int32_t (*choose)(void* instance, const tutti_call* call, tutti_candidate* candidates, uint32_t candidate_count);
} tutti_tuner_ops;

#ifdef __cplusplus
}
#endif
