// SPDX-License-Identifier: Apache-2.0
// The plan: a collective as data. Compiles as C11, C++20 and with nvcc.
//
// A plan is the part of one rank on one channel: a list of steps over chunks, independent of the element count. The
// executor repeats the plan in loops until all data is done. Buffers are divided as follows:
//
//   A buffer has 1 block, or one block per rank. Each block has `count` elements. A channel handles a contiguous range
//   of them. Each loop covers `chunks` chunks of each block. Chunk index c means chunk (c % chunks) of block
//   (c / chunks). In the last loop, chunks may be shorter or empty. The value of an empty chunk is neither sent nor
//   received.
//
//   all-reduce, ring over n ranks:  1 block in and out, n chunks      all-gather:  1 block in, n blocks out, 1 chunk
//   reduce-scatter:                 n blocks in, 1 out, 1 chunk       all-to-all:  n blocks in and out, 1 chunk
//
// A step is one generic operation. The primitives of NCCL (send, recv, recvReduceSend, recvReduceCopySend,
// recvCopySend, ...) are special cases. A fold is a reduction:
//
//   value = fold in ascending rank order of { own source chunk (if source), message of each peer in `recv` }
//   write value to the destination chunk (if destination)
//   send value to each peer in `send`
//
//   TUTTI_STEP_GATHER:  the step folds nothing. It writes the message of peers[i] in `recv` to output chunk
//                       peers[i].chunk. It copies the source chunk (if any) to the destination chunk (if any), and
//                       sends the source chunk to the peers in `send`.
//   TUTTI_STEP_SCATTER: peers[i] in `send` gets chunk peers[i].chunk of the source buffer instead of the value. The
//                       step receives only if it is also a GATHER step.
//   TUTTI_STEP_FINAL:   the value is complete. The final operation of the reduction (the division of an average) is
//                       applied before the value is written or sent. Every output chunk of a reduction passes exactly
//                       one FINAL step, also if the operation is a sum. Only steps that fold, of collectives that
//                       reduce, have this flag.
//
// Steps run in order. A step that folds waits for a filled slot of each peer in `recv`, and for a free slot to each
// peer in `send`. In GATHER and SCATTER steps the sends do not wait for the receives. Messages between two ranks on one
// channel arrive in the order sent: the k-th send of i to j meets the k-th receive of j from i. Both must cover the
// same number of elements: chunks whose indices agree in c % chunks have the same length.
//
//   - All chunks of a step that folds have the same length. The chunks of a GATHER or SCATTER step may differ:
//     each message has the length of its chunk, and may be empty.
//   - A step with neither source nor destination sends on the data that it receives. source_chunk (< chunks) gives the
//     length.
//   - The sends, receives and copy of a GATHER or SCATTER step have no order, except that sends precede receives.
//     So the step must not write a chunk twice, and must not both read and write a chunk. A copy of a chunk to itself,
//     in place, is allowed.
//   - A rank occurs at most once in `recv` and at most once in `send` of a step. Unused fields are 0.
#pragma once

#include <stdint.h>

#include "tutti/plugin/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The buffers of a step. A destination is NONE or OUTPUT. */
#define TUTTI_BUFFER_NONE 0u
#define TUTTI_BUFFER_INPUT 1u
#define TUTTI_BUFFER_OUTPUT 2u

/* Step flags. */
#define TUTTI_STEP_GATHER 1u
#define TUTTI_STEP_SCATTER 2u
#define TUTTI_STEP_FINAL 4u
/* Only the host sets this flag. No later step overwrites the chunk that holds the value (the destination, or the source
   if there is no destination). So peers may read the value there instead of in a slot. */
#define TUTTI_STEP_STABLE 128u

typedef struct tutti_plan_peer {
  uint32_t rank;
  uint32_t chunk; /* in GATHER and SCATTER steps; else 0 */
} tutti_plan_peer;

typedef struct tutti_plan_step {
  uint8_t source;
  uint8_t destination;
  uint8_t flags;
  uint8_t reserved;
  uint32_t source_chunk;
  uint32_t destination_chunk;
  /* Ranges of tutti_plan.peers: ascending by rank; in GATHER and SCATTER steps, in the order of the plan's author. */
  uint16_t recv_begin, recv_count;
  uint16_t send_begin, send_count;
} tutti_plan_step;

typedef struct tutti_plan {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t rank_count;
  uint32_t rank;
  uint32_t root;          /* 0 if the collective has no root */
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
