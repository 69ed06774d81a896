// SPDX-License-Identifier: Apache-2.0
// The protocol plugin. Search states the links on which it is valid, and its cost. Connect lays out the slots of a
// connection. Primitives (the executors and kernels of tutti/device/) move and reduce the data of a program.
#pragma once

#include "tutti/plugin/abi.h"
#include "tutti/plugin/algorithm.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A doorbell: one line of memory on which a thread sleeps and which its peers ring after they changed something it may
 * wait for. */
typedef struct tutti_bell {
  uint32_t sleeping; /* set by the sleeper before its last look, read by ringers after their store */
  uint32_t rings;    /* futex word, incremented by ringers */
  int32_t event_fd;  /* >= 0: the sleeper polls this eventfd of the same process instead of the futex */
  uint32_t reserved[13];
} tutti_bell;

/* Connection flags. */
#define TUTTI_CONNECTION_NETWORK                                                      \
  1u /* a progress thread moves the slots: only the counters say that a slot is ready \
      */
#define TUTTI_CONNECTION_SHARED_SPACE \
  2u /* both ends share one address space: the receiver can use the sender's addresses */
#define TUTTI_CONNECTION_REMOTE_READ \
  4u /* the receiver can read the sender's memory through the kernel (peer_process) */

/* One direction between two ranks on one channel, from the view of one side. The slots lie in memory that both sides
 * map (or this side's progress thread). `step`, `next_begin`, `next_end`, `seen` and `call` are private to this side.
 * `step` counts slots. Over a network, a message takes one slot. In shared memory, a message takes as many contiguous
 * slots as it needs; if too few slots are left before the end of the memory, the message begins at the first slot
 * again. */
typedef struct tutti_connection {
  uint8_t* slots;  /* slot i of step k (i = k % slot_count) begins at slots + i * slot_stride */
  uint64_t* tail;  /* slots that the sender has filled so far; written by the sender */
  uint64_t* head;  /* slots that the receiver has freed so far; written by the receiver */
  uint64_t* sizes; /* per slot, bytes of it that are in use; written by the sender, read by its progress thread; null on
                      shared memory */
  tutti_bell* peer_bell;
  uint64_t step;       /* next step of this side */
  uint64_t next_begin; /* first step of the next message: `step`, or the next step at slot 0 */
  uint64_t next_end;   /* step after that message */
  uint64_t seen;       /* last value read from the other side's counter */
  uint64_t call;       /* last call whose signature was sent or checked */
  uint64_t slot_stride;
  uint64_t payload_bytes; /* payload of one message */
  uint32_t slot_count;
  uint32_t flags;
  uint32_t peer;         /* rank */
  int32_t peer_process;  /* process id, for REMOTE_READ */
  uint64_t direct_until; /* sender: step after the latest message that referred to the sender's own memory */
} tutti_connection;

/* The position of an execution between two calls of `run`. All zero: the beginning. */
typedef struct tutti_cursor {
  uint64_t loop;
  uint64_t slice;
  uint32_t step;
  uint32_t peer; /* within GATHER and SCATTER steps: peers done in this slice */
} tutti_cursor;

/* A digest of this call and of all earlier calls of its communicator. The first message of a call on each connection
 * carries its two words. Ranks whose digests differ have made different calls. For a send or receive: a digest of all
 * messages between these two ranks in this direction. */
typedef struct tutti_signature {
  uint32_t words[2];
} tutti_signature;

/* Why `run` returned a failure. */
typedef struct tutti_fault {
  uint32_t peer;          /* rank the failing step talked to */
  tutti_signature theirs; /* for TUTTI_MISMATCH: digest of the peer */
} tutti_fault;

/* One channel's share of a call. */
typedef struct tutti_work {
  uint32_t struct_size;
  uint32_t data_type;
  uint32_t reduce_op;
  uint32_t element_bytes;
  const tutti_program* program;
  tutti_connection* const* connections; /* one per entry of program->peers: the connection to it or from it */
  const void* input;
  void* output;
  uint64_t count; /* elements of a block */
  uint64_t begin; /* the range of each block that this channel handles, in elements */
  uint64_t end;
  uint64_t chunk_elements; /* elements of a chunk in every loop but the last; whole lines of 64 bytes */
  uint64_t slice_elements; /* elements of a slice: the content of one message */
  uint64_t scalar;  /* bits of one element: factor of every contribution read from the input (pre-multiplied sum) */
  uint32_t divisor; /* the final operation divides by this (average); 0: nothing to do */
  uint32_t check;   /* 1: send and check signatures */
  tutti_signature signature;
  uint64_t call; /* number of the call on its communicator, from 1 */
  /* Slices of at least so many bytes: the receiver reads the sender's memory itself; 0: never. */
  uint64_t direct_minimum;
  const uint32_t* abort; /* not zero: stop and return TUTTI_ABORTED */
  uint32_t spins;        /* polls of one wait before `run` returns TUTTI_AGAIN */
  uint32_t fences;       /* 1: a store that a sleeper may wait for must be a full barrier; 0: sleepers make one */
  tutti_cursor cursor;
  tutti_fault fault;
  void* scratch; /* scratch_chunks × chunk_elements elements, of this channel alone; null: the program has none */
} tutti_work;

/* Devices. */
#define TUTTI_DEVICE_HOST 1u
#define TUTTI_DEVICE_CUDA 2u

/* How GPUs see that the data of a slot has arrived. */
#define TUTTI_FLAGS_NONE 0u /* a signal in the mailbox says it */
/* By flags in the data, in a form of the protocol's own. No process can carry the slots between GPUs of different
 * hosts. */
#define TUTTI_FLAGS_OWN 1u
/* By flags in each 8 bytes of a slot, as `ll` has them. The lower 4 bytes are data, the upper 4 bytes are the flag: the
 * message's number + 1. A message fills 16-byte lines from the begin of its slot: 4 bytes of data in each half. A store
 * of 8 bytes arrives as a whole. Kernels signal nothing but `done`. Before flags repeat, the sender rewrites all flags
 * of a slot with flags of other slots (device/cuda/flag_wrap.h). A process of the host can carry such slots between
 * GPUs of different hosts. */
#define TUTTI_FLAGS_PAIRS 2u

typedef struct tutti_protocol_properties {
  uint32_t struct_size;
  uint32_t links;   /* bits 1 << TUTTI_LINK_*: where it is valid */
  uint32_t max_fan; /* peers one step may receive from or send to */
  uint32_t devices; /* TUTTI_DEVICE_*: the devices that run it */
  /* Latency that the protocol adds to each hop. In place of it and of channel_gbs, a figure of the table of hardware
   * figures (section protocols) holds for TUTTI_LINK_P2P. */
  double latency_us[TUTTI_LINK_LIMIT];
  double efficiency[TUTTI_LINK_LIMIT]; /* payload / slot bytes at large sizes, 0..1; above 1 if a link carries more than
                                          stores of processors reach */
  double channel_gbs[TUTTI_LINK_LIMIT];     /* GB/s of the wire that one channel can fill; 0: unknown */
  uint64_t channel_bytes[TUTTI_LINK_LIMIT]; /* fewer bytes are not worth a channel of their own; 0: unknown */
  uint32_t flags_in_data;                   /* TUTTI_FLAGS_* */
  uint32_t needs_registered; /* 1: launches store straight to outputs of peers (tutti_cuda_copies): only for calls whose
                                outputs are registered on all ranks, and plans in which every message is one hop */
  /* 1: if outputs are registered, kernels store the messages straight to outputs of peers that a program marks
   * (tutti_cuda_peer.to_output); all remaining messages go through slots. */
  uint32_t direct_store;
  /* 1: `launch` runs launches of the large form (tutti_cuda_tables), too, with scratch buffers. */
  uint32_t large_launches;
  /* 1: `launch` runs programs with strands (tutti_cuda_strands), too, in the large form. Otherwise it gets programs
   * whose steps are one list. */
  uint32_t strands;
  /* 1: kernels find slots by tutti_cuda_link.scattered, too. Otherwise the slots of all CTAs lie together, in memory of
   * this GPU or of the host. */
  uint32_t scattered_slots;
} tutti_protocol_properties;

/* How one connection is cut. */
typedef struct tutti_slot_layout {
  uint32_t struct_size;
  /* In: the number in the configuration, 0: none; out: the number of the layout (a power of two). */
  uint32_t slot_count;
  uint64_t slot_bytes;   /* in: payload that the configuration asks for, 0: none; out: payload of one message (slice) */
  uint64_t slot_stride;  /* out: bytes from slot to slot, a multiple of 64; memory is zero at first */
  uint32_t chunk_slots;  /* out: messages (slices) one chunk may fill */
  uint32_t max_channels; /* out: that a call can use; 0: any number */
  uint32_t overlaps;     /* out: 1: kernels let loops overlap (plugin/cuda.h) where slots suffice */
  uint32_t message_slots; /* out, TUTTI_LINK_SHM: slots that the largest message takes; 0: one */
} tutti_slot_layout;

typedef struct tutti_protocol_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* search [any] */
  int32_t (*properties)(void* self, tutti_protocol_properties* out);
  /* connect: the layout of a connection over `link` (TUTTI_LINK_*). TUTTI_UNSUPPORTED: the protocol declines the link
     with these settings. Calls over the link then use other protocols, and `explain` shows the text that it passes to
     host->fail. Another failure ends the setup of the communicator. [any] */
  int32_t (*layout)(void* self, uint32_t link, tutti_slot_layout* layout);
  /* primitives, host: executes the work in the calling thread until done (TUTTI_OK), until it would wait longer than
     work->spins polls (TUTTI_AGAIN: call again, nothing is lost), or until it fails. May also return TUTTI_AGAIN after
     it has filled slots that a network carries, so that the host can send them. Never blocks in the kernel.
     [progress: one thread per work] */
  int32_t (*run)(void* self, tutti_work* work);
  /* primitives, CUDA: enqueues the launch's kernel on `stream` (a cudaStream_t) of the calling thread's current GPU.
   * With a null launch it loads all kernels there, so that no kernel has to be loaded while kernels run. [any] */
  int32_t (*launch)(void* self, const tutti_cuda_launch* launch, void* stream);
  /* connect, CUDA: sets `ctas` to the number of CTAs of its kernels for strands that the calling thread's current GPU
   * holds at the same time, at most TUTTI_CUDA_MAX_CTAS. Launches of programs with strands have no more CTAs, because
   * strands wait for each other. 0, or a null entry: strands run as one list. Called for protocols with `strands`.
   * [any]
   */
  int32_t (*strand_ctas)(void* self, uint32_t* ctas);
} tutti_protocol_ops;

#ifdef __cplusplus
}
#endif
