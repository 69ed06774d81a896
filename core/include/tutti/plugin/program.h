// SPDX-License-Identifier: Apache-2.0
// The program: a plan in the form that executors and kernels run. Compiles as C11, C++20 and with nvcc.
//
// A program has the steps of a plan in their order (plan.h). It states what a plan leaves to be worked out:
//
//   - Chunk numbers are split into block and chunk.
//   - Each send and each receive has an entry of its own in `peers`, with the number of its message.
//   - A step that folds has the position of the own contribution among the received ones.
//
// There are no repeats. On the host, the steps are one list. On GPUs, a program may have strands, which are ranges of
// its steps (cuda.h).
//
// Three structs hold a step, with the same fields and the same meaning. The executor of the host reads numbers of 32
// bits (tutti_program_step). Kernels of the small form read numbers of 8 bits (tutti_cuda_step), so that a program fits
// the parameters of a kernel. Kernels of the large form read numbers of 16 bits (tutti_cuda_large_step). cuda.h states
// the forms. In programs of the large form, `rank` of a peer is the number of a connection (cuda.h).
#pragma once

#include "tutti/plugin/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flag of a step beside those of plans: the messages of a GATHER step go to the scratch buffer. */
#define TUTTI_STEP_TO_SCRATCH 16u

/* The fields of a step, with numbers of type `number`:
 *
 *   source, destination  TUTTI_BUFFER_*
 *   flags                TUTTI_STEP_*; on GPUs TUTTI_CUDA_STEP_*, too
 *   own_position         received contributions that are folded before the own one
 *   source_block, source_chunk, destination_block, destination_chunk
 *   recv_begin, recv_count, send_begin, send_count
 *                        ranges of `peers`, in the order of the plan. The sends of a step that folds begin with the
 *                        next rank
 *   stage                on GPUs, if loops overlap: the wave in which the step runs is the loop plus the stage
 *   recv_stage           stage of the messages that a GATHER or SCATTER step receives; in all other steps as `stage` */
#define TUTTI_STEP_FIELDS(number)              \
  uint8_t source;                              \
  uint8_t destination;                         \
  uint8_t flags;                               \
  number own_position;                         \
  number source_block, source_chunk;           \
  number destination_block, destination_chunk; \
  number recv_begin, recv_count;               \
  number send_begin, send_count;               \
  number stage;                                \
  number recv_stage;

/* The fields of a peer, with numbers of type `number`:
 *
 *   rank
 *   message       messages of the loop before this message on the connection
 *   block, chunk  in GATHER and SCATTER steps; else 0
 *   lag           on GPUs, for a received message: waves since the peer sent it
 *   to_output     on GPUs: 1: the sender stores the message to the receiver's output
 *   output_block, output_chunk
 *                 destination of a message with to_output = 1 */
#define TUTTI_PEER_FIELDS(number) \
  number rank;                    \
  number message;                 \
  number block, chunk;            \
  number lag;                     \
  number to_output;               \
  number output_block, output_chunk;

typedef struct tutti_program_step {
  TUTTI_STEP_FIELDS(uint32_t)
} tutti_program_step;

typedef struct tutti_program_peer {
  TUTTI_PEER_FIELDS(uint32_t)
} tutti_program_peer;

/* A program as the executor of the host reads it. */
typedef struct tutti_program {
  uint32_t struct_size;
  uint32_t chunks; /* per block and loop */
  uint32_t step_count;
  uint32_t peer_count;
  const tutti_program_step* steps;
  const tutti_program_peer* peers;
  const tutti_plan_range* ranges; /* one for each step; null: every step has one chunk */
  uint32_t input_blocks;
  uint32_t output_blocks;
  uint32_t scratch_chunks;
  uint32_t reserved;
} tutti_program;

#ifdef __cplusplus
}
#endif
