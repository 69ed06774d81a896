// SPDX-License-Identifier: Apache-2.0
// The GPU's side of a protocol: what its kernels are launched with. C11, C++20 and nvcc clean.
//
// A launch runs one call on one GPU. Each of its blocks ("CTAs") runs the program of its channel over an even part of
// every block of the buffers, in loops, and talks to the CTA of the same index on other GPUs. All a kernel needs before
// its first store travels in its parameters, what small calls need first; the one thing it reads from memory is the
// CTA's track.
//
// Messages between two GPUs go through slots that the receiver has made: message number m of a CTA uses slot m modulo
// slot_count. Numbers go on from call to call (the track's `epoch`), and on all ranks alike: a call advances every
// connection of a CTA by `cut.messages`, used or not. A sender may be slot_count messages ahead of what the receiver
// has said that it is done with.
//
// Where outputs are registered, a program may say of messages that are only written to their receiver's output that the
// sender stores them there. They take numbers as others do, and the receiver is told and tells in the same way, but
// their slots stay empty.
//
// Loops may overlap, so that what one waits for is on its way while another moves data. A call takes loops + stages - 1
// waves; in wave w every step runs once, for loop w - its stage, where there is one. Steps move the first slice of
// their chunks, then the second, and so on: message m of slice s that is sent in wave w has number
// epoch + (w · cut.slices + s) · program.messages + m. Where loops do not overlap, a step moves all slices before the
// next step does, and the number is epoch + (w · program.messages + m) · cut.slices + s.
#pragma once

#include "tutti/plugin/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_CUDA_MAX_RANKS 16u
#define TUTTI_CUDA_MAX_STEPS 64u
#define TUTTI_CUDA_MAX_PEERS 128u
#define TUTTI_CUDA_MAX_CTAS 64u
#define TUTTI_CUDA_MAX_MESSAGES 32u
#define TUTTI_CUDA_MAX_COPIES 32u
#define TUTTI_CUDA_MAX_HOPS 7u
/* CTAs that are wanted in one cluster, where the chip has clusters: those of a launch then lie evenly on its SMs. */
#define TUTTI_CUDA_CLUSTER 4u

/* Flags of a step beside TUTTI_STEP_*. It touches memory that an earlier step of the loop touched, and one of them
 * writes. MEET: the same place of a chunk is not for the same thread in both steps, if threads take places as
 * device/cuda/lines.h says. */
#define TUTTI_CUDA_STEP_AFTER 32u
#define TUTTI_CUDA_STEP_MEET 64u

/* A step of a plan, as kernels run it: chunk numbers are split into block and chunk. */
typedef struct tutti_cuda_step {
  uint8_t source;
  uint8_t destination;
  uint8_t flags;
  uint8_t own_position; /* received contributions that are folded before the own one */
  uint8_t source_block, source_chunk;
  uint8_t destination_block, destination_chunk;
  uint8_t recv_begin, recv_count;
  uint8_t send_begin, send_count;
  uint8_t stage;
  uint8_t recv_stage; /* of what a GATHER or SCATTER step receives; else as `stage` */
} tutti_cuda_step;

typedef struct tutti_cuda_peer {
  uint8_t rank;
  uint8_t message;                    /* how many of the loop went before it on this connection */
  uint8_t block, chunk;               /* GATHER and SCATTER */
  uint8_t lag;                        /* of a received message: waves since it was sent */
  uint8_t to_output;                  /* 1: the sender stores it to the receiver's output */
  uint8_t output_block, output_chunk; /* of a message that is sent like that: where */
} tutti_cuda_peer;

typedef struct tutti_cuda_program {
  uint8_t step_count;
  uint8_t chunks;   /* per block and loop */
  uint8_t messages; /* per loop on the busiest connection of any rank */
  uint8_t peer_count;
  uint8_t stages; /* 1: loops follow one another */
  uint8_t lag;    /* the most of any message of any rank */
  uint8_t reserved[2];
  tutti_cuda_step steps[TUTTI_CUDA_MAX_STEPS];
  tutti_cuda_peer peers[TUTTI_CUDA_MAX_PEERS];
} tutti_cuda_program;

/* Where a CTA's messages stand; in this GPU's memory. */
typedef struct tutti_cuda_track {
  uint32_t epoch; /* messages so far, modulo 2^32 */
  uint32_t safe;  /* messages with numbers before it have a free slot at every receiver */
} tutti_cuda_track;

/* What one peer tells a CTA; in memory of who is told, written by the peer. All peers have one, used or not. */
typedef struct tutti_cuda_mailbox {
  uint32_t tail; /* messages that are there (protocols that do not tell by flags in the data) */
  uint32_t reserved[7];
  uint32_t done; /* messages from here that the peer is done with */
  uint32_t reserved2;
  /* In one store of 8 bytes: in the call that ends at this epoch the peer's output is free to be stored to, and lies at
   * this place of registered memory. */
  uint32_t opened;
  uint32_t place;
  uint32_t reserved3[4];
} tutti_cuda_mailbox;

/* One GPU's connections with a peer, of all CTAs. */
typedef struct tutti_cuda_link {
  uint8_t* to; /* slots that this GPU fills, slot_stride bytes each: [CTA, or lane][slot]; null: it fills none */
  const uint8_t* from;    /* slots that the peer fills, likewise */
  tutti_cuda_mailbox* at; /* [CTA, or lane]: where this GPU tells the peer */
  tutti_cuda_mailbox* of; /* [CTA, or lane]: where the peer tells this GPU */
  /* [CTA, or lane][slot]: for the process that carries messages to a peer of another host: the length of the slot's
   * message in bytes << 32 | the message's number. It is stored before the tail is. Null for peers of this host. */
  uint64_t* lengths;
} tutti_cuda_link;

#define TUTTI_CUDA_LONG_WAIT_NS 100000000u /* kernels show longer waits to the host */
#define TUTTI_CUDA_WAIT_RANK 0xffffu       /* the bits of tutti_cuda_control.waits that hold a rank */

/* In host memory that the GPU sees. */
typedef struct tutti_cuda_control {
  uint32_t abort;   /* host: not zero: stop */
  uint32_t fault;   /* GPU: a TUTTI_* code: why a kernel gave up */
  uint32_t peer;    /* rank that it waited for */
  uint32_t channel; /* CTA that waited */
  /* GPU: stored by kernels every 25 ms while they wait for longer than TUTTI_CUDA_LONG_WAIT_NS. Nanoseconds of the
   * GPU's clock. A changing `seen` shows the host that a kernel waits. */
  uint64_t waits; /* begin of the wait, its lowest 16 bits replaced by the awaited rank */
  uint64_t seen;  /* time at which the kernel still waited; stored after `waits` */
} tutti_cuda_control;

/* How a block of the buffers is cut among CTAs, loops, chunks and slices. All but `loops` and `slices` in bytes and
 * multiples of 16. */
typedef struct tutti_cuda_cut {
  uint64_t part;       /* per CTA; the last ones less */
  uint64_t chunk;      /* in every loop but the last */
  uint64_t last_chunk; /* in the last loop of a full part */
  uint64_t slice;      /* one message */
  uint32_t loops;
  uint32_t slices;   /* messages of a chunk */
  uint32_t messages; /* of a call, on the busiest connection of a CTA: by so many the epoch advances */
  uint32_t reserved;
} tutti_cuda_cut;

/* What becomes of the own block of a program of one hop. */
#define TUTTI_CUDA_OWN_UNUSED 0u /* at most sent */
#define TUTTI_CUDA_OWN_KEPT 1u   /* copied to the output */
#define TUTTI_CUDA_OWN_FOLDED 2u /* folded with what is received */

typedef struct tutti_cuda_hop {
  uint8_t* slots; /* as in tutti_cuda_link: to be filled, or filled by the peer */
  uint64_t at;    /* of the input, or of the output; in bytes, as own_from and own_to */
} tutti_cuda_hop;

/* A program all of whose messages go from the input straight into what their receivers make of them: what is small is
 * run faster like this. The program is there, too, and what a kernel does by either fits what peers do by the other, if
 * it waits for nothing before it has sent all. There is a thread for each 8 bytes of a CTA's part. */
typedef struct tutti_cuda_one_hop {
  uint8_t send_count;
  uint8_t recv_count;   /* both 0: the program is no such one, or the launch has several loops */
  uint8_t scatters;     /* 0: what is sent is the own block */
  uint8_t own;          /* TUTTI_CUDA_OWN_* */
  uint8_t folds;        /* 1: what is received becomes one value, at own_to; 0: each goes to its hop's `at` */
  uint8_t own_position; /* received contributions that are folded before the own one */
  uint8_t is_final;     /* the fold's value is divided by `divisor` */
  uint8_t is_aligned;   /* all places of what is sent and of the own block are multiples of 8 */
  uint8_t send_ranks[TUTTI_CUDA_MAX_HOPS];
  uint8_t recv_ranks[TUTTI_CUDA_MAX_HOPS];
  uint8_t reserved2[2];
  uint64_t own_from;
  uint64_t own_to;
  tutti_cuda_hop sends[TUTTI_CUDA_MAX_HOPS];
  tutti_cuda_hop receives[TUTTI_CUDA_MAX_HOPS]; /* in ascending order of ranks where they are folded */
} tutti_cuda_one_hop;

/* What a launch of messages has: sends, receives, and copies that this GPU keeps. */
#define TUTTI_CUDA_SEND 0u
#define TUTTI_CUDA_RECEIVE 1u
#define TUTTI_CUDA_KEEP 2u
#define TUTTI_CUDA_MESSAGE_KINDS 3u

/* One of them. It is cut among lanes, as a block is among CTAs; each has connections of its own. */
typedef struct tutti_cuda_message {
  const void* from; /* SEND, KEEP */
  void* to;         /* RECEIVE, KEEP */
  uint64_t bytes;
  tutti_cuda_cut cut; /* `part`: per lane */
  uint8_t peer;       /* SEND, RECEIVE */
  uint8_t kind;       /* TUTTI_CUDA_SEND, ... */
  uint8_t lane_count;
  uint8_t reserved;
  uint32_t reserved2;
} tutti_cuda_message;

/* A block of the own input that goes to the output of a peer. */
typedef struct tutti_cuda_copy {
  uint64_t from; /* bytes from the beginning of the input */
  uint64_t to;   /* bytes from the beginning of the peer's output */
  uint32_t peer;
  uint32_t reserved;
} tutti_cuda_copy;

/* What a launch of a protocol with `needs_registered` runs: whole blocks, `block_bytes` each, that go straight into
 * registered outputs of peers, in the order of the list. It is one message to each receiver, on the one CTA there is.
 *
 * A rank tells its senders when its output is free, and its receivers when their data is there. */
typedef struct tutti_cuda_copies {
  uint32_t count;
  uint32_t senders;   /* bits 1 << rank: who stores to this rank's output */
  uint32_t receivers; /* likewise: to whose outputs this rank stores */
  uint32_t has_own;   /* 0: there is no own block, or it is where it belongs */
  uint64_t own_from;  /* the own block, as in tutti_cuda_copy */
  uint64_t own_to;
  /* A stream of the communicator that a part of the launch may run on beside the call's, and two events to lead to it
   * and back: a cudaStream_t that does not block, in no capture or in that of the call's stream, and cudaEvent_t. */
  void* side;
  void* fork;
  void* join;
  tutti_cuda_copy list[TUTTI_CUDA_MAX_COPIES];
} tutti_cuda_copies;

typedef struct tutti_cuda_launch {
  uint32_t struct_size;
  uint32_t data_type; /* of the kernel: copies of any type may run as unsigned integers */
  uint32_t reduce_op;
  uint32_t cta_count;
  uint32_t thread_count; /* per CTA, if each moves 8 bytes at a time: a power of two from 64 to 1024. Fewer will do */
  uint32_t rank;
  uint32_t rank_count;
  uint32_t divisor;    /* as in tutti_work */
  uint32_t shares_gpu; /* 1: other ranks' launches run on this GPU, too, and may wait for this one */
  uint32_t reserved;
  const uint8_t* input;
  uint8_t* output;
  tutti_cuda_track* tracks;    /* per CTA; of messages: [lane][peer][0: sends, 1: receives] */
  tutti_cuda_control* control; /* for kernels that wait */
  uint64_t block_bytes;        /* of a block of the buffers */
  uint64_t slot_stride;
  uint32_t slot_count;    /* a power of two */
  uint32_t premultiplied; /* 1: contributions read from the input are multiplied by `scalar` */
  uint64_t scalar;        /* as in tutti_work */
  tutti_cuda_cut cut;
  tutti_cuda_one_hop one_hop;
  uint64_t timeout_ns;    /* of one wait */
  uint32_t message_count; /* not 0: the launch runs `messages` instead of programs, in their order */
  uint32_t program_count;
  /* Of messages: so many CTAs for each kind, those of sends first. They take the lanes of all messages of their kind in
   * turn, each its own one after the other. All of a launch run at the same time. */
  uint32_t kind_ctas[TUTTI_CUDA_MESSAGE_KINDS];
  /* Stands for where in registered memory the outputs lie: the same on all ranks; 0: nobody stores to outputs of peers.
   * Nothing may be stored to a peer's before the peer has said, in this call and with the same place, that it is free.
   */
  uint32_t place;
  tutti_cuda_link links[TUTTI_CUDA_MAX_RANKS]; /* by rank */
  uint8_t* outputs[TUTTI_CUDA_MAX_RANKS];      /* by rank: the peers' outputs, as this GPU sees them */
  /* In this GPU's memory, program_count of them: CTA c runs number c modulo program_count. Null: all run `program`, as
   * wires whose messages are short always do. */
  const tutti_cuda_program* programs;
  union {
    tutti_cuda_program program;
    tutti_cuda_message messages[TUTTI_CUDA_MAX_MESSAGES];
    tutti_cuda_copies copies; /* of protocols with `needs_registered`, and of no others */
  };
} tutti_cuda_launch;

#ifdef __cplusplus
}
static_assert(sizeof(tutti_cuda_launch) <= 4096, "the parameters of a kernel");
#endif
