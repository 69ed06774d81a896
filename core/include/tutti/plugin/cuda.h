// SPDX-License-Identifier: Apache-2.0
// The launch of a protocol's kernels on a GPU: the parameters of one call. C11, C++20 and nvcc clean.
//
// A launch runs one call on one GPU. Each of its CTAs (thread blocks) runs the program of its channel over an even part
// of every block of the buffers, in loops. It exchanges messages with the CTA of the same index on other GPUs. All data
// that a kernel needs before its first store travels in its parameters; data for small calls comes first. The only
// exception is the CTA's sequence, which the kernel reads from memory.
//
// Messages. A message between two GPUs goes through a slot in the receiver's memory. Message number m of a CTA uses
// slot m modulo slot_count. The sequence numbers continue from call to call (`next` of tutti_cuda_sequence), equally on
// all ranks: a call advances every connection of a CTA by `cut.messages`, used or not. A sender may be at most
// slot_count messages ahead of the receiver's `done` signal.
//
// Forms. A launch has one of two forms. In the small form, the connections and one program travel in the parameters. In
// the large form, they lie in this GPU's memory (tutti_cuda_tables). A launch has the large form if the communicator or
// a program of the rank exceeds a limit of the small form or has a scratch buffer. Messages are the same in both forms,
// so one rank may run a program in the small form while a peer runs its program in the large form.
//
// Connections. A connection of a program has a number, which is the `rank` of the program's peers. If a communicator
// has up to TUTTI_CUDA_MAX_CONNECTIONS + 1 ranks, the number is the peer's rank. In larger communicators, each program
// numbers the ranks with which it has messages, in ascending order (`ranks` of tutti_cuda_large_program). A call then
// signals only on the connections of its program, but it advances the sequence numbers of all connections. So a CTA
// signals `done` on its connections when the call begins, and looks for a free slot before each message.
//
// Scratch buffer. A program may have a scratch buffer, which is memory of this GPU. It is divided like the input and
// the output: into blocks of block_bytes, of which each CTA and each loop has its own part. So loops that overlap share
// no scratch chunk. A launch with a scratch buffer has the large form.
//
// Strands. A program may have strands: ranges of steps that run beside each other. Strand y of channel x is the CTA
// (x, y) of the grid. All CTAs of a channel have the same part of the buffers and the same connections. Each direction
// of a connection belongs to one strand. Strands wait for each other by counters in this GPU's memory
// (tutti_cuda_progress). A launch with strands has the large form.
//
// Direct stores. If outputs are registered, a program may mark messages that the receiver only writes to its output.
// The sender then stores the message to that output. The message has a number and signals like every message, but its
// slot stays empty.
//
// Overlapping loops. Loops may overlap, so that a loop waits for its messages while a different loop moves data. A call
// takes loops + stages - 1 waves. In wave w, each step runs once, for loop w - its stage, if this loop exists. All
// steps move the first slice of their chunks, then all move the second, and so on. Message m of slice s that is sent in
// wave w has the number first + (w · cut.slices + s) · program.messages + m. If loops do not overlap, a step moves all
// its slices before the next step begins, and the number is first + (w · program.messages + m) · cut.slices + s.
//
// Units: sizes and offsets are bytes unless stated otherwise.
#pragma once

#include "tutti/plugin/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The limits of the large form, which are the limits of kernels. */
#define TUTTI_CUDA_MAX_RANKS 1024u
#define TUTTI_CUDA_MAX_CONNECTIONS 63u /* of a program; the own rank has a number, too */
#define TUTTI_CUDA_MAX_STEPS 65535u
#define TUTTI_CUDA_MAX_PEERS 65535u
#define TUTTI_CUDA_MAX_STRANDS 8u
#define TUTTI_CUDA_MAX_STRAND_STEPS 255u /* steps of a program with strands */
/* The limits of the small form. */
#define TUTTI_CUDA_SMALL_RANKS 16u
#define TUTTI_CUDA_SMALL_STEPS 64u
#define TUTTI_CUDA_SMALL_PEERS 128u
#define TUTTI_CUDA_MAX_CTAS 64u
#define TUTTI_CUDA_MAX_MESSAGES 32u
#define TUTTI_CUDA_MAX_COPIES 32u
#define TUTTI_CUDA_MAX_HOPS 7u
/* The number of CTAs in a cluster, on chips with clusters. The CTAs of a launch then lie evenly on the SMs. */
#define TUTTI_CUDA_CLUSTER 4u

/* Flags of a step beside TUTTI_STEP_*. SIGNAL: steps of other strands wait for this step. AFTER: the step touches
 * memory that an earlier step of the loop touched, and one of the two steps writes. MEET: the same element of a chunk
 * belongs to different threads in the two steps, if threads take elements as device/cuda/ll_kernel.h states. */
#define TUTTI_CUDA_STEP_SIGNAL 8u
#define TUTTI_CUDA_STEP_AFTER 32u
#define TUTTI_CUDA_STEP_MEET 64u

/* A step and a peer of a program of the small form, with numbers of 8 bits. */
typedef struct tutti_cuda_step {
  TUTTI_STEP_FIELDS(uint8_t)
} tutti_cuda_step;

typedef struct tutti_cuda_peer {
  TUTTI_PEER_FIELDS(uint8_t)
} tutti_cuda_peer;

typedef struct tutti_cuda_program {
  uint8_t step_count;
  uint8_t chunks;   /* per block and loop */
  uint8_t messages; /* per loop on the busiest connection of any rank */
  uint8_t peer_count;
  uint8_t stages; /* 1: loops do not overlap */
  uint8_t lag;    /* the largest lag of any message of any rank */
  uint8_t reserved[2];
  tutti_cuda_step steps[TUTTI_CUDA_SMALL_STEPS];
  tutti_cuda_peer peers[TUTTI_CUDA_SMALL_PEERS];
} tutti_cuda_program;

/* A step and a peer of a program of the large form, with numbers of 16 bits. */
typedef struct tutti_cuda_large_step {
  TUTTI_STEP_FIELDS(uint16_t)
} tutti_cuda_large_step;

typedef struct tutti_cuda_large_peer {
  TUTTI_PEER_FIELDS(uint16_t)
} tutti_cuda_large_peer;

typedef struct tutti_cuda_link tutti_cuda_link;

/* A program of the large form. The counts are as in tutti_cuda_program. All pointers are to this GPU's memory. */
typedef struct tutti_cuda_large_program {
  uint16_t step_count;
  uint16_t chunks;
  uint16_t messages;
  uint16_t peer_count;
  uint16_t stages;
  uint16_t lag;
  uint16_t scratch_blocks; /* blocks of the scratch buffer; 0: none */
  uint16_t strand_count;   /* 0: one CTA of each channel runs all steps; else as in the program's tutti_cuda_strands */
  const tutti_cuda_large_step* steps;
  const tutti_cuda_large_peer* peers;
  const tutti_cuda_link* links; /* by number of the connection, connection_count entries */
  /* The rank of each connection, then the own rank: connection_count + 1 entries. Null: numbers are ranks, and the
   * entry of the own rank in `links` is not used. */
  const uint32_t* ranks;
  uint32_t connection_count; /* at most TUTTI_CUDA_MAX_CONNECTIONS; if numbers are ranks, the number of ranks */
  uint32_t reserved;
} tutti_cuda_large_program;

/* A strand of a program: a range of steps that one CTA runs in order, in each loop. */
typedef struct tutti_cuda_strand {
  uint8_t first_step;
  uint8_t step_count;
  uint8_t reserved[6];
  /* Bits 1 << number of the connection: connections on which this strand signals `done`. A strand signals on the
   * connections on which it receives. The first strand signals, too, on the connections on which no strand receives. */
  uint64_t sources;
} tutti_cuda_strand;

/* The strands of a program of the large form, and their waits. */
typedef struct tutti_cuda_strands {
  uint32_t strand_count; /* from 1 on */
  uint32_t reserved;
  tutti_cuda_strand strands[TUTTI_CUDA_MAX_STRANDS];
  /* By step. Byte t (from the lowest on): so many steps of strand t must be complete in the same loop before the step
   * begins; 0: the step does not wait for the strand. */
  uint64_t after[TUTTI_CUDA_MAX_STRAND_STEPS];
} tutti_cuda_strands;

/* How far the strands of a channel are. In this GPU's memory, all 0 before and after each launch. A count is the number
 * of loops that the strand has begun before, times its steps, plus the steps that are complete in this loop. Only steps
 * with TUTTI_CUDA_STEP_SIGNAL store the count. */
typedef struct tutti_cuda_progress {
  uint32_t ended; /* strands that have ended; the last one advances the sequence, and sets all of this to 0 */
  uint32_t reserved[7];
  uint32_t complete[TUTTI_CUDA_MAX_STRANDS];
} tutti_cuda_progress;

/* The sequence numbers of a channel: of a CTA, or of all strands of the channel. In this GPU's memory. */
typedef struct tutti_cuda_sequence {
  uint32_t next; /* number of the next message, modulo 2^32 */
  uint32_t safe; /* messages with lower numbers have a free slot at every receiver */
} tutti_cuda_sequence;

/* The signals of one peer to one CTA. In memory of the signaled rank; the peer writes it. All peers have a mailbox,
 * used or not. */
typedef struct tutti_cuda_mailbox {
  uint32_t tail; /* messages that have arrived (protocols without flags in the data) */
  uint32_t reserved[7];
  uint32_t done; /* messages from this rank that the peer no longer needs */
  uint32_t reserved2;
  /* The ready signal, one store of 8 bytes. It says that the peer's output is free in the call that ends at this
   * sequence number, and that the output lies at this place of registered memory. */
  uint32_t ready;
  uint32_t place;
  uint32_t reserved3[4];
} tutti_cuda_mailbox;

/* The slots of one CTA, or stripe, slot_stride bytes each: [slot]. */
typedef struct tutti_cuda_slots {
  uint8_t* to;         /* slots that this GPU fills */
  const uint8_t* from; /* slots that the peer fills */
} tutti_cuda_slots;

/* The connections of one GPU with one peer, of all CTAs. */
struct tutti_cuda_link {
  uint8_t* to; /* slots that this GPU fills, slot_stride bytes each: [CTA, or stripe][slot]; null: it fills none */
  const uint8_t* from;    /* slots that the peer fills, with the same layout */
  tutti_cuda_mailbox* at; /* [CTA, or stripe]: mailboxes in which this GPU signals the peer */
  tutti_cuda_mailbox* of; /* [CTA, or stripe]: mailboxes in which the peer signals this GPU */
  /* [CTA, or stripe][slot]: the length of the slot's message in bytes << 32 | the message's number, for the process
   * that carries messages to a peer on a different host. Stored before the tail. Null for peers on this host. */
  uint64_t* lengths;
  /* [CTA, or stripe], in this GPU's memory: slots that lie in different places, such as memory of a second GPU that is
   * near the network port of the CTA. The slots at `to` and `from` are then not used. Null: `to` and `from` are. Only
   * for protocols with `scattered_slots`, and null for peers on this host. */
  const tutti_cuda_slots* scattered;
};

#define TUTTI_CUDA_LONG_WAIT_NS 100000000u /* kernels show longer waits to the host */
#define TUTTI_CUDA_NO_PEER 0xffffffffu     /* no kernel has given up */
#define TUTTI_CUDA_WAIT_RANK 0xffffu       /* the bits of tutti_cuda_control.waits that hold a rank */

/* In host memory that the GPU sees. */
typedef struct tutti_cuda_control {
  uint32_t abort; /* host: not zero: stop */
  uint32_t fault; /* GPU: a TUTTI_* code: why a kernel gave up */
  /* Rank that it waited for; the own rank: a strand waited for a different strand. TUTTI_CUDA_NO_PEER before. */
  uint32_t peer;
  uint32_t channel; /* CTA that waited */
  /* GPU: stored by kernels every 25 ms while they wait for longer than TUTTI_CUDA_LONG_WAIT_NS. Nanoseconds of the
   * GPU's clock. A changing `seen` shows the host that a kernel waits. */
  uint64_t waits; /* begin of the wait, its lowest 16 bits replaced by the awaited rank */
  uint64_t seen;  /* time at which the kernel still waited; stored after `waits` */
} tutti_cuda_control;

/* The division of a block of the buffers among CTAs, loops, chunks and slices. All fields but `loops` and `slices` are
 * bytes and multiples of 16. */
typedef struct tutti_cuda_cut {
  uint64_t part;       /* per CTA; the last CTAs have less */
  uint64_t chunk;      /* in every loop but the last */
  uint64_t last_chunk; /* in the last loop of a full part */
  uint64_t slice;      /* one message */
  uint32_t loops;
  uint32_t slices;   /* messages of a chunk */
  uint32_t messages; /* messages of a call on the busiest connection of a CTA: the sequence advances by this number */
  uint32_t reserved;
} tutti_cuda_cut;

/* Use of the own block in a program of one hop. */
#define TUTTI_CUDA_OWN_UNUSED 0u /* not stored; it may be sent */
#define TUTTI_CUDA_OWN_KEPT 1u   /* copied to the output */
#define TUTTI_CUDA_OWN_FOLDED 2u /* folded with the received data */

typedef struct tutti_cuda_hop {
  uint8_t* slots; /* as in tutti_cuda_link: slots that this GPU fills, or slots that the peer fills */
  uint64_t at;    /* offset in the input (sends) or in the output (receives), as own_from and own_to */
} tutti_cuda_hop;

/* A program of one hop: each message goes from the sender's input straight to its final use. Small programs run faster
 * in this form. The launch contains the program, too. A kernel may run either form, whichever form the peers run, if it
 * sends all messages before its first wait. Each thread handles 8 bytes of a CTA's part. */
typedef struct tutti_cuda_one_hop {
  uint8_t send_count;
  uint8_t recv_count;   /* if send_count and recv_count are 0, the program has no form of one hop, or the launch has
                           several loops */
  uint8_t scatters;     /* 0: all messages contain the own block; 1: message i contains the data at sends[i].at */
  uint8_t own;          /* TUTTI_CUDA_OWN_* */
  uint8_t folds;        /* 1: received data is folded to one value at own_to; 0: each message goes to `at` of its hop */
  uint8_t own_position; /* received contributions that are folded before the own one */
  uint8_t is_final;     /* the fold's value is divided by `divisor` */
  uint8_t is_aligned;   /* 1: all addresses of sent data and of the own block are multiples of 8 */
  uint8_t send_ranks[TUTTI_CUDA_MAX_HOPS];
  uint8_t recv_ranks[TUTTI_CUDA_MAX_HOPS];
  uint8_t reserved2[2];
  uint64_t own_from;
  uint64_t own_to;
  tutti_cuda_hop sends[TUTTI_CUDA_MAX_HOPS];
  tutti_cuda_hop receives[TUTTI_CUDA_MAX_HOPS]; /* in ascending order of ranks if they are folded */
} tutti_cuda_one_hop;

/* Kinds of messages in a launch of messages: sends, receives, and copies on this GPU. */
#define TUTTI_CUDA_SEND 0u
#define TUTTI_CUDA_RECEIVE 1u
#define TUTTI_CUDA_KEEP 2u
#define TUTTI_CUDA_MESSAGE_KINDS 3u

/* A message of a launch of messages. It is cut into stripes, as a block is cut among CTAs. Each stripe has
 * connections of its own. */
typedef struct tutti_cuda_message {
  const void* from; /* SEND, KEEP */
  void* to;         /* RECEIVE, KEEP */
  uint64_t bytes;
  tutti_cuda_cut cut; /* `part` is per stripe */
  uint16_t peer;      /* rank; SEND, RECEIVE */
  uint8_t kind;       /* TUTTI_CUDA_SEND, ... */
  uint8_t stripe_count;
  uint32_t reserved;
} tutti_cuda_message;

/* A block of the own input that goes to the output of a peer. */
typedef struct tutti_cuda_copy {
  uint64_t from; /* bytes from the beginning of the input */
  uint64_t to;   /* bytes from the beginning of the peer's output */
  uint32_t peer;
  uint32_t reserved;
} tutti_cuda_copy;

/* The copies of a launch for a protocol with `needs_registered`: whole blocks of `block_bytes`, straight into
 * registered outputs of peers, in the order of the list. A launch counts as one message to each receiver, on a single
 * CTA.
 *
 * A rank signals to its senders that its output is free, and to its receivers that their data has arrived. */
typedef struct tutti_cuda_copies {
  uint32_t count;
  uint32_t senders;   /* bits 1 << rank: ranks that store to this rank's output */
  uint32_t receivers; /* bits 1 << rank: ranks to whose outputs this rank stores */
  uint32_t has_own;   /* 0: there is no own block, or it lies at its destination already */
  uint64_t own_from;  /* the own block, as in tutti_cuda_copy */
  uint64_t own_to;
  /* A side stream of the communicator, which may run a part of the launch beside the call's stream, and two events that
   * fork to it and join it. `side` is a cudaStream_t that does not block. It is in no capture, or in the capture of the
   * call's stream. `fork` and `join` are of type cudaEvent_t. */
  void* side;
  void* fork;
  void* join;
  tutti_cuda_copy list[TUTTI_CUDA_MAX_COPIES];
} tutti_cuda_copies;

/* The data of the large form. All pointers are to this GPU's memory. */
typedef struct tutti_cuda_tables {
  /* Null: the launch has the small form. Programs: the mailboxes of all ranks, by rank; slots are in the links of each
   * program. Messages: [row][rank]. The row of a message with l stripes is the number of bits of l - 1, because
   * connections for different numbers of stripes have different slots. */
  const tutti_cuda_link* links;
  /* An array of program_count programs, which CTAs use as tutti_cuda_launch.programs states. Null in launches of
   * messages. */
  const tutti_cuda_large_program* programs;
  tutti_cuda_large_program first;    /* a copy of programs[0], so that kernels need not load it */
  uint8_t* scratch;                  /* blocks of block_bytes; null: the programs have no scratch buffer */
  const tutti_cuda_strands* strands; /* by program, program_count tables; null: no program has strands */
  tutti_cuda_progress* progress;     /* [channel]; null without strands */
  /* CTAs of each channel: the most strands of any of `programs`. CTAs without a strand do nothing. 0: one CTA runs all
   * steps. */
  uint32_t strand_count;
  uint32_t reserved;
} tutti_cuda_tables;

typedef struct tutti_cuda_launch {
  uint32_t struct_size;
  uint32_t data_type; /* type of the kernel's elements: copies of every type may run as unsigned integers */
  uint32_t reduce_op;
  uint32_t cta_count;    /* with strands: channels, each of tables.strand_count CTAs */
  uint32_t thread_count; /* per CTA, if each thread moves 8 bytes at a time: a power of two from 64 to 1024; fewer
                            threads work, too */
  uint32_t rank;
  uint32_t rank_count;
  uint32_t divisor;    /* as in tutti_work */
  uint32_t shares_gpu; /* 1: launches of other ranks run on this GPU and may wait for this launch */
  uint32_t reserved;
  const uint8_t* input;
  uint8_t* output;
  tutti_cuda_sequence* sequences; /* per CTA; for messages: [stripe][peer][0: sends, 1: receives] */
  tutti_cuda_control* control;    /* read and written in waits */
  uint64_t block_bytes;           /* size of a block of the buffers */
  uint64_t slot_stride;
  uint32_t slot_count;    /* a power of two */
  uint32_t premultiplied; /* 1: contributions read from the input are multiplied by `scalar` */
  uint64_t scalar;        /* as in tutti_work */
  tutti_cuda_cut cut;
  tutti_cuda_one_hop one_hop;
  uint64_t timeout_ns;    /* time limit of each wait */
  uint32_t message_count; /* not 0: the launch runs `messages` in their order, and no program */
  uint32_t program_count;
  /* For messages: the number of CTAs of each kind, sends first. The CTAs of a kind take the stripes of all its messages
   * in turn. Each CTA handles its stripes in order. All CTAs of a launch run at the same time. */
  uint32_t kind_ctas[TUTTI_CUDA_MESSAGE_KINDS];
  /* The position of the outputs in registered memory, as one word that is equal on all ranks. 0: nothing is stored to
   * outputs of peers. A kernel may store to a peer's output only after the peer's ready signal of this call, with the
   * same place. */
  uint32_t place;
  tutti_cuda_link links[TUTTI_CUDA_SMALL_RANKS]; /* by rank; in the small form */
  /* By rank: the peers' outputs, as addresses of this GPU. Communicators of more than TUTTI_CUDA_SMALL_RANKS ranks
   * store nothing to outputs of peers. */
  uint8_t* outputs[TUTTI_CUDA_SMALL_RANKS];
  /* In this GPU's memory, program_count programs: CTA c runs program c modulo program_count. Null: all CTAs run
   * `program`. Wire formats with short messages always use `program`. In the small form. */
  const tutti_cuda_program* programs;
  union {
    tutti_cuda_program program;
    tutti_cuda_message messages[TUTTI_CUDA_MAX_MESSAGES];
    tutti_cuda_copies copies; /* only of protocols with `needs_registered` */
  };
  tutti_cuda_tables tables; /* the data of the large form; null pointers in the small form */
} tutti_cuda_launch;

#ifdef __cplusplus
}
static_assert(sizeof(tutti_cuda_launch) <= 4096, "the parameters of a kernel");
#endif
