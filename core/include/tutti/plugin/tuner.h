// SPDX-License-Identifier: Apache-2.0
// The tuner plugin. Its phases: search receives the topology, connect prepares tables, primitives predicts the times of
// the candidates of a call. The host runs the candidate with the smallest time.
#pragma once

#include "tutti/plugin/abi.h"
#include "tutti/plugin/topology.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A candidate: one algorithm variant with one protocol that could run the call. TUTTI_LINK_* index the arrays. */
typedef struct tutti_candidate {
  uint32_t struct_size;
  uint32_t max_channels;
  tutti_str algorithm; /* "ring" */
  tutti_str variant;   /* "two-shot"; empty if the algorithm has a single variant */
  tutti_str protocol;  /* "simple" */
  /* The cost that the algorithm states, see tutti_algorithm_cost. */
  uint32_t hops[TUTTI_LINK_LIMIT];        /* messages on the critical path */
  uint32_t messages[TUTTI_LINK_LIMIT];    /* messages of the busiest rank; 0: as many as hops */
  double wire[TUTTI_LINK_LIMIT];          /* bytes of the busiest rank, as a multiple of block_bytes × blocks */
  double algorithm_gbs[TUTTI_LINK_LIMIT]; /* GB/s of one channel; 0: channels share the bandwidth of the topology */
  double memory;                          /* bytes in the memory of the busiest rank, as a multiple */
  double protocol_latency_us[TUTTI_LINK_LIMIT]; /* added to each hop, in µs */
  double protocol_efficiency[TUTTI_LINK_LIMIT]; /* payload bytes / wire bytes, about 0..1; 0: not valid on this link */
  double channel_gbs[TUTTI_LINK_LIMIT];         /* GB/s of the link that one channel can fill; 0: unknown */
  uint64_t channel_bytes[TUTTI_LINK_LIMIT];     /* a channel with fewer bytes does not pay; 0: unknown */
  /* In: negative if the host excludes the candidate (rules, capabilities); the tuner does not change it then.
     Out: predicted time of the call in µs. The smallest time wins. Negative: the tuner excludes the candidate, and
     `reason` contains the reason. */
  double predicted_us;
  uint32_t channels;         /* out: number of channels to use, 1..max_channels */
  uint32_t needs_registered; /* 1: only calls with registered outputs can run it */
  tutti_str reason;          /* out, optional: static text, valid as long as the shared object is loaded */
  /* In: of all ranks of the busiest machine together, see tutti_algorithm_cost. 0: as if each rank were the busiest. */
  uint32_t machine_messages[TUTTI_LINK_LIMIT];
  double machine_wire[TUTTI_LINK_LIMIT];
  /* In: the share of a block's chunks that are not empty in this call. Ranks send no messages for empty chunks: of the
     four chunks of a block of 8 bytes, three are empty. 0: unknown. Since tuner ABI 1.2. */
  double filled_chunks;
} tutti_candidate;

typedef struct tutti_call {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t data_type;
  uint32_t reduce_op;
  uint64_t block_bytes; /* bytes of one block */
  uint64_t blocks;      /* number of blocks of the larger buffer */
  uint32_t registered;  /* 1: all ranks have registered their outputs */
  uint32_t reserved;
} tutti_call;

typedef struct tutti_tuner_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* search and connect: prepares the tuner for one communicator. The topology is valid during the call. [setup] */
  int32_t (*create)(void* self, const tutti_topology* topology, void** instance);
  void (*destroy)(void* instance);
  /* primitives: fills the outputs of every candidate that the host does not exclude. The host may leave out candidates
     that do not offer the collective. The result must be the same on every rank: it depends only on the arguments, the
     settings and the tables. TUTTI_UNSUPPORTED: the tuner declines
     the call. This excludes all candidates, and `explain` shows the text that it passes to host->fail. Such a call
     fails, so a tuner should answer every call (TUN-5). [any] */
  int32_t (*choose)(void* instance, const tutti_call* call, tutti_candidate* const* candidates,
                    uint32_t candidate_count);
} tutti_tuner_ops;

#ifdef __cplusplus
}
#endif
