// SPDX-License-Identifier: Apache-2.0
// The algorithm plugin: search finds channels in one machine, connect joins the machines, primitives emits plans. Host
// code only.
#pragma once

#include "tutti/plugin/abi.h"
#include "tutti/plugin/plan.h"
#include "tutti/plugin/topology.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Takes what search finds in one machine; copies what it needs before it returns. Called once. */
typedef struct tutti_graph_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*report)(void* context, const tutti_graph* graph);
} tutti_graph_sink;

typedef struct tutti_plan_request {
  uint32_t struct_size;
  uint32_t collective;
  uint32_t rank;
  uint32_t channel;
  uint32_t root;
  uint32_t variant; /* which of the algorithm's variants, < variant count; see tutti_algorithm_ops.variant */
} tutti_plan_request;

/* Takes the finished plan; copies what it needs before it returns. */
typedef struct tutti_plan_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*emit)(void* context, const tutti_plan* plan);
} tutti_plan_sink;

/* The network devices by which a rank talks to another on a channel; TUTTI_NO_NET: any. */
typedef struct tutti_channel_nets {
  uint32_t send;
  uint32_t receive;
} tutti_channel_nets;

/* The α–β cost of one loop over the whole data, per rank, as a tuner needs it. */
typedef struct tutti_algorithm_cost {
  uint32_t struct_size;
  uint32_t fan;                        /* peers that one step of a plan sends to or receives from, at most; 0: one */
  uint32_t hops[TUTTI_LINK_COUNT];     /* messages one after the other on the critical path, by link kind */
  uint32_t messages[TUTTI_LINK_COUNT]; /* messages that the busiest rank sends or receives; 0: as many as hops */
  double wire[TUTTI_LINK_COUNT]; /* bytes the busiest rank sends, as a multiple of the call's bytes per block × blocks,
                                    by link kind */
  double gbs[TUTTI_LINK_COUNT];  /* GB/s of one channel per rank and direction, by link kind; further channels add
                                    theirs;  0: channels share what the topology says */
  double memory;                 /* bytes the busiest rank reads and writes in its own memory, likewise */
} tutti_algorithm_cost;

typedef struct tutti_algorithm_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* search: reports the channels of the machine that holds `rank` to the sink, topology->max_channels at most. One rank
     of each machine is asked. [setup] */
  int32_t (*search)(void* self, const tutti_topology* topology, uint32_t rank, const tutti_graph_sink* sink);
  /* connect: joins the machines' channels; all ranks pass the same graphs (one per machine, in order) and get the same
     channels. [setup] */
  int32_t (*connect)(void* self, const tutti_topology* topology, const tutti_graph* graphs, uint32_t graph_count,
                     void** instance);
  void (*disconnect)(void* instance);
  /* How many channels the instance has. [any] */
  uint32_t (*channel_count)(void* instance);
  /* Name of variant `index` (for example "one-shot", "two-shot") and the bit mask of collectives it can do (1 <<
     TUTTI_ALL_REDUCE ...). TUTTI_NOT_FOUND past the last. Static: the same for every instance; strings live as long as
     the image. [any] */
  int32_t (*variant)(void* self, uint32_t index, tutti_str* name, uint64_t* collectives);
  /* primitives: emits the plan of one rank on one channel. The same request gives the same plan. A variant that cannot
     do the collective here declines for all ranks, channels and roots alike: TUTTI_UNSUPPORTED, with a text for
     host->fail, which `explain` shows. [any] */
  int32_t (*plan)(void* instance, const tutti_plan_request* request, const tutti_plan_sink* sink);
  /* The cost of a variant for a collective. [any] */
  int32_t (*cost)(void* instance, uint32_t collective, uint32_t variant, tutti_algorithm_cost* out);
  /* The network devices by which `rank` sends to and receives from `peer`, a rank of another machine. [any] */
  int32_t (*nets)(void* instance, uint32_t channel, uint32_t rank, uint32_t peer, tutti_channel_nets* out);
} tutti_algorithm_ops;

#ifdef __cplusplus
}
#endif
