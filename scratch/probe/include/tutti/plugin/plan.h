// SPDX-License-Identifier: Apache-2.0
// The plan: a collective as data. C11, C++20 and nvcc clean.
//
// A plan says what one rank does on one channel: a list of steps over chunks, independent of the element count. The
// executor repeats it (loops) until all data is done. Buffers are cut so:
//
//   A buffer is 1 block, or one block per rank. Each block holds `count` elements, of which a channel handles a
//   contiguous range. Each loop covers `chunks` chunks of each block; chunk index c means chunk (c % chunks) of block
//   (c / chunks). The last loop may hold shorter or empty chunks; the value of an empty chunk is neither sent nor
//   received.
//
//   all-reduce, ring over n ranks:  1 block in and out, n chunks      all-gather:  1 block in, n blocks out, 1 chunk
//   reduce-scatter:                 n blocks in, 1 out, 1 chunk       all-to-all:  n blocks in and out, 1 chunk
//
// One step is one generic operation; send, recv, recvReduceSend, recvReduceCopySend, recvCopySend, ... are cases of it:
//
//   value = fold in ascending rank order of { own source chunk (if source), what each peer in `recv` sent }
//   write value to the destination chunk (if destination)
//   send value to each peer in `send`
//
//   TUTTI_STEP_GATHER:  nothing is folded. What peers[i] in `recv` sent goes to output chunk peers[i].chunk. The source
//                       chunk (if any) is copied to the destination chunk (if any) and sent to `send`.
//   TUTTI_STEP_SCATTER: peers[i] in `send` gets chunk peers[i].chunk of the source buffer instead of the value. The
//                       step receives only if it is a GATHER step too.
//   TUTTI_STEP_FINAL:   the value is complete: the final operation of the reduction (average's division) is applied
//                       before it is written or sent. Every output of a reduction has passed it exactly once, whatever
//                       the operation. Only in steps that fold, of collectives that reduce.
//
// Steps run in order. A step that folds waits for a filled slot from each peer it receives from and for a free slot to
// each peer it sends to. In GATHER and SCATTER steps the sends do not wait for the receives. Messages between two ranks
// on one channel arrive in the order sent; the k-th send of i to j meets the k-th receive of j from i, and both must
// cover the same number of elements: chunks whose indices agree in c % chunks have the same length.
//
//   - All chunks of a step that folds have one length. Those of a GATHER or SCATTER step may differ: each message has
//     the length of its own chunk, and any of them may be empty.
//   - A step with neither source nor destination passes on what it receives; source_chunk (< chunks) says its length.
//   - The parts of a GATHER or SCATTER step have no order among themselves, except sends before receives: no chunk is
//     written twice or both read and written, other than by copying it onto itself in place.
//   - A rank stands at most once in `recv` and at most once in `send` of a step. Fields without a meaning are 0.
#pragma once

#include <stdint.h>

#include "tutti/plugin/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Buffers a step reads or writes. A destination is none or output. */
#define TUTTI_BUFFER_NONE 0u
#define TUTTI_BUFFER_INPUT 1u
#define TUTTI_BUFFER_OUTPUT 2u

/* Step flags. */
#define TUTTI_STEP_GATHER 1u
#define TUTTI_STEP_SCATTER 2u
#define TUTTI_STEP_FINAL 4u
/* Set by the host, never by a plan's author: no later step overwrites the chunk that holds the value (the destination,
   else the source), so that peers may read it there instead of in a slot. */
#define TUTTI_STEP_STABLE 128u

typedef struct tutti_plan_peer {
  uint32_t rank;
  uint32_t chunk; /* used by GATHER and SCATTER only, else 0 */
} tutti_plan_peer;

typedef struct tutti_plan_step {
  uint8_t source;
  uint8_t destination;
  uint8_t flags;
  uint8_t reserved;
  uint32_t source_chunk;
  uint32_t destination_chunk;
  /* Ranges of tutti_plan.peers, each ascending by rank except in GATHER and SCATTER steps, where the order is the
   * author's. */
  uint16_t recv_begin, recv_count;
  uint16_t send_begin, send_count;
} tutti_plan_step;

typedef struct tutti_plan {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t rank_count;
  uint32_t rank;
  uint32_t root;          /* 0 where the collective has none */
  uint32_t channel;       /* index of the channel this plan runs on */
  uint32_t chunks;        /* chunks per block and loop, >= 1 */
  uint32_t input_blocks;  /* 1 or rank_count */
  uint32_t output_blocks; /* 1 or rank_count */
  uint32_t step_count;
  uint32_t peer_count;
  const tutti_plan_step* steps;
  const tutti_plan_peer* peers;
} tutti_plan;

#ifdef __cplusplus
}
#endif
