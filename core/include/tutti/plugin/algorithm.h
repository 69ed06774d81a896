// SPDX-License-Identifier: Apache-2.0
// The algorithm plugin: search finds channels in one machine, connect joins the machines, primitives emits plans. Host
// code only.
#pragma once

#include "tutti/plugin/abi.h"
#include "tutti/plugin/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of links between two ranks. */
#define TUTTI_LINK_SHM 0u     /* shared memory of one host */
#define TUTTI_LINK_NETWORK 1u /* a network plugin */
#define TUTTI_LINK_P2P 2u     /* device to device */
#define TUTTI_LINK_COUNT 3u

/* What an algorithm may know of the ranks and what joins them. Borrowed for the call. */
typedef struct tutti_topology {
  uint32_t struct_size;
  uint32_t rank_count;
  uint32_t node_count;
  uint32_t reserved;
  const uint32_t* node_of_rank;           /* rank_count entries, each < node_count */
  double bandwidth_gbs[TUTTI_LINK_COUNT]; /* GB/s (1e9 bytes) one rank reaches over a link of this kind, one direction;
                                             0: no such link */
  double latency_us[TUTTI_LINK_COUNT];    /* time of one small message, one way */
} tutti_topology;

/* Takes the channels that search finds in one node: `order` lists the node's ranks (global numbers) along the channel.
 */
typedef struct tutti_graph_sink {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*add_channel)(void* context, const uint32_t* order, uint32_t rank_count, double bandwidth_gbs);
} tutti_graph_sink;

/* The channels of one node, as its search reported them; `orders` holds channel_count × rank_count ranks. */
typedef struct tutti_node_graph {
  uint32_t struct_size;
  uint32_t node;
  uint32_t rank_count;
  uint32_t channel_count;
  const uint32_t* orders;
  double bandwidth_gbs; /* of each channel */
} tutti_node_graph;

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

/* The α–β cost of one loop over the whole data, per rank, as a tuner needs it. */
typedef struct tutti_algorithm_cost {
  uint32_t struct_size;
  uint32_t hops[TUTTI_LINK_COUNT]; /* messages one after the other on the critical path, by link kind */
  double wire[TUTTI_LINK_COUNT]; /* bytes the busiest rank sends, as a multiple of the call's bytes per block × blocks,
                                    by link kind */
  double memory;                 /* bytes the busiest rank reads and writes in its own memory, likewise */
} tutti_algorithm_cost;

typedef struct tutti_algorithm_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* search: reports the channels of the node that holds `rank` to the sink, best first, at most `max_channels`. [setup]
   */
  int32_t (*search)(void* self, const tutti_topology* topology, uint32_t rank, uint32_t max_channels,
                    const tutti_graph_sink* sink);
  /* connect: joins the nodes' channels; all ranks pass the same graphs (one per node) and get the same channels.
   * [setup] */
  int32_t (*connect)(void* self, const tutti_topology* topology, const tutti_node_graph* graphs, uint32_t graph_count,
                     void** instance);
  void (*disconnect)(void* instance);
  /* How many channels the instance has. [any] */
  uint32_t (*channel_count)(void* instance);
  /* Name of variant `index` (for example "one-shot", "two-shot") and the bit mask of collectives it can do (1 <<
     TUTTI_ALL_REDUCE ...). TUTTI_NOT_FOUND past the last. Static: the same for every instance; strings live as long as
     the image. [any] */
  int32_t (*variant)(void* self, uint32_t index, tutti_str* name, uint64_t* collectives);
  /* primitives: emits the plan of one rank on one channel. The same request gives the same plan. [any] */
  int32_t (*plan)(void* instance, const tutti_plan_request* request, const tutti_plan_sink* sink);
  /* The cost of a variant for a collective. [any] */
  int32_t (*cost)(void* instance, uint32_t collective, uint32_t variant, tutti_algorithm_cost* out);
} tutti_algorithm_ops;

#ifdef __cplusplus
}
#endif
