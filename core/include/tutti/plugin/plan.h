// SPDX-License-Identifier: Apache-2.0
// The plan: a collective as data. Compiles as C11, C++20 and with nvcc.
//
// A plan is the part of one rank on one channel: a list of steps over chunks, independent of the element count. The
// executor repeats the plan in loops until all data is done. Buffers are divided as follows:
//
//   A buffer has 1 block, or one block per rank. Each block has `count` elements. A channel handles a contiguous range
//   of them. Each loop covers `chunks` chunks of each block. Chunk index c means chunk (c % chunks) of block
//   (c / chunks). In the last loop, chunks may be shorter or empty. No data of an empty chunk moves. Its message is
//   left out on the host; on GPUs, the number of the message counts.
//
//   all-reduce, ring over n ranks:  1 block in and out, n chunks      all-gather:  1 block in, n blocks out, 1 chunk
//   reduce-scatter:                 n blocks in, 1 out, 1 chunk       all-to-all:  n blocks in and out, 1 chunk
//
// The scratch buffer is memory of the rank. The plan says how many chunks it has; chunk c is as long as chunk c %
// chunks of a block. A step can read a scratch chunk after an earlier step of the same loop has written it. In each
// loop, the contents are undefined at first.
//
// A step is one generic operation. The primitives of NCCL (send, recv, recvReduceSend, recvReduceCopySend,
// recvCopySend, ...) are special cases. A fold is a reduction:
//
//   value = fold in ascending rank order of { own source chunk (if source), message of each peer in `recv` }
//   write value to the destination chunk (if destination)
//   send value to each peer in `send`
//
//   TUTTI_STEP_GATHER:  the step folds nothing. It writes the message of peers[i] in `recv` to chunk peers[i].chunk of
//                       the output, or of the buffer that gather_buffer names. It copies the source chunk (if any) to
//                       the destination chunk (if any), and sends the source chunk to the peers in `send`.
//   TUTTI_STEP_SCATTER: peers[i] in `send` gets chunk peers[i].chunk of the source buffer instead of the value. The
//                       step receives only if it is also a GATHER step.
//   TUTTI_STEP_FINAL:   the value is complete. The final operation of the reduction (the division of an average) is
//                       applied before the value is written or sent. Every output chunk of a reduction passes exactly
//                       one FINAL step, also if the operation is a sum. Only steps that fold, of collectives that
//                       reduce, have this flag.
//
// A step has one chunk, or a list of chunks: ranges[step].count chunks of each buffer. Chunk i of the list is chunk
// (first + i × stride) modulo the number of chunks of the buffer; `first` is the chunk in the step or in the peer. So a
// stride of 1 names neighbours, and a stride of `chunks` names one chunk in each block of several blocks. The step does
// for each i what it would do with one chunk. But each message has all chunks of the list, one after the other. Both
// ends of a message must have the same number of chunks, and chunks i of all lists of a step that folds have the same
// length. No chunk occurs twice in a list. In a step that folds, chunk i that is read and chunk j that is written are
// the same memory only if i = j.
//
// Steps run in order. A step that folds waits for a filled slot of each peer in `recv`, and for a free slot to each
// peer in `send`. In GATHER and SCATTER steps the sends do not wait for the receives. But a long message goes in parts,
// and such a step receives its parts k before it sends its parts k + 1. So a peer must not wait for all of a message of
// the step before the peer sends a message that the step receives. Messages between two ranks on one channel arrive in
// the order sent: the k-th send of i to j meets the k-th receive of j from i. Both must cover the same number of
// elements: chunks whose indices agree in c % chunks have the same length.
//
//   - All chunks of a step that folds have the same length. The chunks of a GATHER or SCATTER step may differ:
//     each message has the length of its chunk, and may be empty.
//   - A step with neither source nor destination sends on the data that it receives. source_chunk (< chunks) gives the
//     length.
//   - The sends, receives and copy of a GATHER or SCATTER step have no order, except that sends precede receives.
//     So the step must not write a chunk twice, and must not both read and write a chunk. A copy of a chunk to itself,
//     in place, is allowed.
//   - A rank occurs at most once in `recv` and at most once in `send` of a step. Unused fields are 0.
//
// A repeat is a body of consecutive steps that runs several rounds, one after the other. Each step of the body has a
// growth. In round k, counted from 0, `growth × k` is added to the numbers of the step: to chunks modulo the number of
// chunks of their buffer, and to ranks modulo rank_count. So a ring over 16,384 ranks has five steps, as over 4. The
// rules above hold for the steps of every round. Bodies do not overlap, and contain no repeat. After the addition, the
// peers of a step that folds are put in ascending order of ranks again.
//
// A strand is a range of consecutive steps. The steps of a strand run in order. Strands run beside each other. A step
// waits for a step of another strand only if the plan has a wait. A wait names two steps: the first begins after the
// second is complete. A step is complete when its value is written and sent, and its messages are received.
//
//   - If two steps of different strands touch the same chunk, and one of them writes it, there must be a way of waits
//     and of steps in order from one to the other. Messages to other ranks and back are no such way.
//   - A strand begins its next loop while other strands may still be in the loop before. A wait is for the same loop.
//     So the rule about chunks holds for scratch chunks of two loops, too. Loops share no other chunks.
//   - All messages to a rank are sent by one strand, and all messages from a rank are received by one strand.
//   - The body of a repeat lies in one strand. If both steps of a wait are in repeats, the repeats have the same number
//     of rounds, and each round waits for the same round. Otherwise a step waits for the last round of a repeat, and
//     all rounds of a repeat wait for a step.
//   - No step waits for itself through other steps.
//
// On GPUs, a strand is a thread block (tutti/plugin/cuda.h). The host, and kernels that run no strands, get the steps
// of all strands as one list, in an order that keeps all waits.
#pragma once

#include <stdint.h>

#include "tutti/plugin/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The buffers of a step. A destination is NONE, OUTPUT or SCRATCH. */
#define TUTTI_BUFFER_NONE 0u
#define TUTTI_BUFFER_INPUT 1u
#define TUTTI_BUFFER_OUTPUT 2u
#define TUTTI_BUFFER_SCRATCH 3u

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
  uint8_t gather_buffer; /* of a GATHER step: OUTPUT or SCRATCH; 0: OUTPUT */
  uint32_t source_chunk;
  uint32_t destination_chunk;
  /* Ranges of tutti_plan.peers: ascending by rank; in GATHER and SCATTER steps, in the order of the plan's author. */
  uint16_t recv_begin, recv_count;
  uint16_t send_begin, send_count;
} tutti_plan_step;

/* The chunks of a step. A step with one chunk has the count 1 and the strides 0. */
typedef struct tutti_plan_range {
  uint32_t count;         /* number of chunks, 1 to message_chunks */
  uint32_t source_stride; /* stride of the source, of the chunks that a SCATTER step sends, and of a forwarding step */
  uint32_t destination_stride; /* stride of the destination, and of the chunks that a GATHER step receives */
  uint32_t reserved;           /* 0 */
} tutti_plan_range;

/* A body of steps that runs `rounds` times. */
typedef struct tutti_plan_repeat {
  uint32_t first_step;
  uint32_t step_count; /* steps of the body, >= 1 */
  uint32_t rounds;     /* >= 1 */
  uint32_t reserved;   /* 0 */
} tutti_plan_repeat;

/* Additions of each round to the numbers of a step. Each is below its modulus; 0 for numbers that the step does not
   use, and for steps outside the bodies. To count down by 1, add modulus - 1. */
typedef struct tutti_plan_growth {
  uint32_t source_chunk;      /* modulo the chunks of the source; in a step that forwards, modulo `chunks` */
  uint32_t destination_chunk; /* modulo the chunks of the destination */
  uint32_t recv_rank;         /* of all peers in `recv` */
  uint32_t recv_chunk;        /* of a GATHER step, modulo the chunks of its buffer */
  uint32_t send_rank;         /* of all peers in `send` */
  uint32_t send_chunk;        /* of a SCATTER step, modulo the chunks of the source */
} tutti_plan_growth;

/* Steps that run in order, beside the steps of other strands. */
typedef struct tutti_plan_strand {
  uint32_t first_step; /* 0, or where the strand before ends */
  uint32_t step_count; /* >= 1 */
} tutti_plan_strand;

/* A step that begins after a step of another strand is complete. */
typedef struct tutti_plan_wait {
  uint32_t step;
  uint32_t after; /* the step that `step` waits for */
} tutti_plan_wait;

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
  /* The host takes plans whose struct_size ends here: then the following fields are 0. */
  uint32_t scratch_chunks; /* scratch chunks of this rank */
  uint32_t message_chunks; /* the largest count of a range in the plans of all ranks; 0 or 1: all messages have one
                              chunk. The same on all ranks: the length of chunks depends on it */
  const tutti_plan_range* ranges; /* one for each step; null: every step has one chunk */
  uint32_t repeat_count;
  uint32_t reserved;                /* 0 */
  const tutti_plan_repeat* repeats; /* ascending by first_step */
  const tutti_plan_growth* growths; /* one for each step; may be null if repeat_count is 0 */
  uint32_t strand_count;            /* up to 64; 0: one strand has all steps */
  uint32_t wait_count;
  const tutti_plan_strand* strands; /* all steps, in order */
  const tutti_plan_wait* waits;     /* ascending by step, then by after */
} tutti_plan;

#ifdef __cplusplus
}
#endif
