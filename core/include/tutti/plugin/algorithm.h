// SPDX-License-Identifier: Apache-2.0
// The algorithm plugin. Its three phases: search finds the channels of one machine, connect joins the machines,
// primitives emits plans. All code runs on the host.
#pragma once

#include "tutti/plugin/abi.h"
#include "tutti/plugin/plan.h"
#include "tutti/plugin/topology.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives the graph that search found in one machine. `report` copies the data before it returns. search calls it
   once. */
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
  uint32_t variant; /* index of the variant, < number of variants; see tutti_algorithm_ops.variant */
} tutti_plan_request;

/* Receives the finished plan. `emit` copies the data before it returns. */
typedef struct tutti_plan_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*emit)(void* context, const tutti_plan* plan);
} tutti_plan_sink;

/* The network devices by which a rank sends to and receives from a peer on a channel. TUTTI_NO_NET: any device. */
typedef struct tutti_channel_nets {
  uint32_t send;
  uint32_t receive;
} tutti_channel_nets;

/* The α–β cost of one call, per rank, as if one loop moved all data. Tuners predict times from it. The bytes of a call
 * are those of its larger buffer: for a ring all-gather over n ranks, `wire` is (n - 1) / n. All numbers are finite and
 * at least 0. */
typedef struct tutti_algorithm_cost {
  uint32_t struct_size;
  uint32_t fan;                        /* most peers that one step of a plan sends to or receives from; 0: one peer */
  uint32_t hops[TUTTI_LINK_LIMIT];     /* messages on the critical path, by link kind */
  uint32_t messages[TUTTI_LINK_LIMIT]; /* messages that the busiest rank sends or receives; 0: as many as hops */
  double wire[TUTTI_LINK_LIMIT]; /* bytes that the busiest rank sends or receives, as a multiple of the call's bytes
                                    per block × blocks, by link kind */
  double gbs[TUTTI_LINK_LIMIT];  /* GB/s of one channel per rank and direction, by link kind. The bandwidths of
                                    channels add up. 0: channels share the bandwidth of the topology */
  double memory;                 /* bytes that the busiest rank reads and writes in its own memory, as a multiple of
                                    the call's bytes per block × blocks */
  uint32_t machine_messages[TUTTI_LINK_LIMIT]; /* messages that all ranks of the busiest machine send and receive
                                                  together, by link kind; 0: as if each rank were the busiest */
  double machine_wire[TUTTI_LINK_LIMIT];       /* bytes that they send and receive together, as a multiple of the call's
                                                  bytes per block × blocks; 0: as if each rank were the busiest */
} tutti_algorithm_cost;

typedef struct tutti_algorithm_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* search: reports the channels of the machine of `rank` to the sink, at most topology->max_channels. The host calls
     it on one rank of each machine. [setup] */
  int32_t (*search)(void* self, const tutti_topology* topology, uint32_t rank, const tutti_graph_sink* sink);
  /* connect: joins the channels of all machines. All ranks pass the same graphs (one per machine, in order) and must
     get the same channels. [setup] */
  int32_t (*connect)(void* self, const tutti_topology* topology, const tutti_graph* graphs, uint32_t graph_count,
                     void** instance);
  void (*disconnect)(void* instance);
  /* The number of channels of the instance. [any] */
  uint32_t (*channel_count)(void* instance);
  /* The name of variant `index` (for example "one-shot", "two-shot"), and the collectives that it can do, as bits (1 <<
     TUTTI_ALL_REDUCE ...). Returns TUTTI_NOT_FOUND after the last variant. All instances have the same variants.
     Strings are valid as long as the shared object is loaded. [any] */
  int32_t (*variant)(void* self, uint32_t index, tutti_str* name, uint64_t* collectives);
  /* primitives: emits the plan of one rank on one channel. Equal requests give equal plans. If a variant cannot do the
   * collective on this topology, it returns TUTTI_UNSUPPORTED for all ranks, channels and roots. `explain` shows the
   * text that it passes to host->fail. [any] */
  int32_t (*plan)(void* instance, const tutti_plan_request* request, const tutti_plan_sink* sink);
  /* The cost of a variant for a collective. TUTTI_UNSUPPORTED: the variant declines the collective, and `explain` shows
     the text that it passes to host->fail. Another failure ends the call. [any] */
  int32_t (*cost)(void* instance, uint32_t collective, uint32_t variant, tutti_algorithm_cost* out);
  /* The network devices by which `rank` sends to and receives from `peer`, a rank of a different machine. [any] */
  int32_t (*nets)(void* instance, uint32_t channel, uint32_t rank, uint32_t peer, tutti_channel_nets* out);
} tutti_algorithm_ops;

#ifdef __cplusplus
}
#endif
