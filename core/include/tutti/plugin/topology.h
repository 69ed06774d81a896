// SPDX-License-Identifier: Apache-2.0
// The system graph: the nodes of one machine, the links between them, and the best path between any two nodes. The host
// makes it, and algorithm plugins read it. Compiles as C11, C++20 and with nvcc.
//
// All data is read-only, and valid during the call that it is passed to.
#pragma once

#include <stdint.h>

#include "tutti/plugin/abi.h"
#include "tutti/plugin/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types of nodes. A rank is on a GPU node. If it computes on the CPU, it is on a HOST node. */
#define TUTTI_NODE_GPU 0u
#define TUTTI_NODE_HOST 1u /* one rank that computes on the CPU, linked to its CPU node */
#define TUTTI_NODE_PCI 2u  /* PCI switch or bridge */
#define TUTTI_NODE_NVS 3u  /* NVSwitch: one node for all switches of the machine */
#define TUTTI_NODE_CPU 4u  /* NUMA node */
#define TUTTI_NODE_NIC 5u  /* network adapter */
#define TUTTI_NODE_NET 6u  /* port of an adapter: a device of a network plugin */
#define TUTTI_NODE_TYPE_COUNT 7u

/* Types of links. */
#define TUTTI_WIRE_LOC 0u /* within a device */
#define TUTTI_WIRE_NVL 1u /* NVLink, xGMI between GPUs */
#define TUTTI_WIRE_C2C 2u /* chip to chip: a CPU and its GPU on one module */
#define TUTTI_WIRE_PCI 3u
#define TUTTI_WIRE_SYS 4u /* between CPUs */
#define TUTTI_WIRE_NET 5u /* NIC to its port */
#define TUTTI_WIRE_TYPE_COUNT 6u

/* Types of paths, closest first. The type of a path is the farthest type of its links. */
#define TUTTI_PATH_LOC 0u /* the node itself */
#define TUTTI_PATH_NVL 1u /* NVLink, directly or over NVSwitch; or from a NIC to its port */
#define TUTTI_PATH_NVB 2u /* NVLink through one other GPU */
#define TUTTI_PATH_C2C 3u
#define TUTTI_PATH_PIX 4u  /* one PCI switch */
#define TUTTI_PATH_PXB 5u  /* several PCI switches, no CPU */
#define TUTTI_PATH_P2C 6u  /* chip to chip to the CPU, PCI from there */
#define TUTTI_PATH_PXN 7u  /* to a NIC over NVLink and a second GPU */
#define TUTTI_PATH_PHB 8u  /* through one CPU */
#define TUTTI_PATH_SYS 9u  /* between two CPUs */
#define TUTTI_PATH_NET 10u /* over the network */
#define TUTTI_PATH_DIS 11u /* no path */
#define TUTTI_PATH_TYPE_COUNT 12u

/* tutti_system_node.chip of a CPU. */
#define TUTTI_CPU_UNKNOWN 0u
#define TUTTI_CPU_INTEL 1u
#define TUTTI_CPU_AMD 2u
#define TUTTI_CPU_ARM 3u
#define TUTTI_CPU_POWER 4u
#define TUTTI_CPU_ZHAOXIN 5u

/* tutti_system_node.flags. */
#define TUTTI_NODE_DIRECT 1u /* GPU, NET: the network can read and write GPU memory (GPUDirect RDMA) */
#define TUTTI_NODE_AMD 2u    /* GPU: an AMD GPU; `chip` is its gfx number (942) */

#define TUTTI_NO_RANK UINT32_MAX

typedef struct tutti_system_node {
  uint32_t type;
  uint32_t index; /* GPU: device number; CPU: NUMA node; NET: device of the network plugin; else: a count per type */
  uint64_t id;   /* PCI address as domain << 20 | bus << 12 | device << 4 | function; NET: the adapter's GUID; else 0 */
  uint32_t rank; /* GPU and HOST: rank in the communicator, or TUTTI_NO_RANK */
  uint32_t chip; /* GPU: compute capability × 10 (90) or gfx number; CPU: TUTTI_CPU_*; else 0 */
  uint32_t flags;
  uint32_t port;         /* NET: port of the adapter */
  double latency_us;     /* NET: time of a small message, one way, in µs; 0: unknown */
  uint32_t max_channels; /* NET: most channels that enter the machine by this port, and most that leave; 0: no limit */
  uint32_t channel_mbs;  /* GPU: MB/s (1e6 bytes) that one channel of a search carries at most; 0: no limit */
} tutti_system_node;

/* One direction of a link. */
typedef struct tutti_system_link {
  uint32_t from;    /* node */
  uint32_t to;      /* node */
  uint32_t type;    /* TUTTI_WIRE_* */
  uint32_t reverse; /* index of the link in the opposite direction */
  double gbs;       /* GB/s (1e9 bytes) */
} tutti_system_link;

/* The best path from one node to another. */
typedef struct tutti_system_path {
  uint32_t type;      /* TUTTI_PATH_* */
  uint32_t hop_begin; /* index in tutti_system.hops */
  uint32_t hop_count; /* 0: no path (DIS), or the node itself (LOC) */
  uint32_t reserved;
  double gbs; /* GB/s of its narrowest link; LOC: of the node's memory; DIS: 0 */
} tutti_system_path;

typedef struct tutti_system {
  uint32_t struct_size;
  uint32_t node_count;
  uint32_t link_count;
  uint32_t hop_count;
  const tutti_system_node* nodes;
  const tutti_system_link* links;
  const tutti_system_path* paths; /* node_count × node_count: from node f to node t is paths[f * node_count + t] */
  const uint32_t* hops;           /* indices of links */
} tutti_system;

/* Kinds of links between two ranks, in protocols and costs. */
#define TUTTI_LINK_SHM 0u     /* shared memory of one host */
#define TUTTI_LINK_NETWORK 1u /* a network plugin */
#define TUTTI_LINK_P2P 2u     /* device to device */
#define TUTTI_LINK_COUNT 3u
/* Elements of arrays that a kind of links indexes, in structs. New kinds of links do not move the fields behind. The
   elements from TUTTI_LINK_COUNT on are 0. */
#define TUTTI_LINK_LIMIT 8u

/* The ranks of a communicator, and the links between them. */
typedef struct tutti_topology {
  uint32_t struct_size;
  uint32_t rank_count;
  uint32_t node_count;   /* machines */
  uint32_t min_channels; /* connect makes at least this many; it may repeat the channels that search found */
  uint32_t max_channels; /* search and connect make at most this many */
  uint32_t reserved;
  const uint32_t* node_of_rank;           /* rank_count entries, each < node_count */
  double bandwidth_gbs[TUTTI_LINK_LIMIT]; /* GB/s (1e9 bytes) of one rank over a link of this kind, in one direction; 0:
                                             there is no link of this kind */
  double latency_us[TUTTI_LINK_LIMIT];    /* time of one small message, one way, in µs */
  double gap_us[TUTTI_LINK_LIMIT];        /* time from a small message of a rank to its next, in µs */
  double memory_gbs;                      /* GB/s of a rank's own memory, reads and writes together; 0: unknown */
  const tutti_system* system; /* in search: the machine of the searching rank, null if unknown; in connect, and for
                                 tuners: null */
  tutti_str gpu_name; /* the GPUs of all ranks: "NVIDIA H200", or all different names joined by " + "; empty: the ranks
                         compute on the host, or the GPUs are unknown */
  double processor_gbs[TUTTI_LINK_LIMIT]; /* GB/s that one processor sends or receives over a link of this kind; 0: the
                                             data takes no time of processors, or the figure is unknown */
  double processors; /* number that the ranks of one machine use, at most one for each rank. The machine with the
                        fewest for each rank counts. 0: processors do not limit the ranks, or their number is unknown */
  double switch_us; /* time from a rank that waits to the next rank of its processor, in µs, if ranks share processors;
                       0: each rank has a processor, or the time is unknown */
} tutti_topology;

/* Patterns of channels in one machine. */
#define TUTTI_PATTERN_RING 0u /* order[0] receives from the previous machine, the last rank sends to the next */
#define TUTTI_PATTERN_TREE 1u /* a chain; order[0] serves the machines of the parent and of both children */
#define TUTTI_PATTERN_BALANCED_TREE 2u /* as TREE, but order[1] serves the machine of the second child */
#define TUTTI_PATTERN_SPLIT_TREE 3u    /* as TREE, but order[1] serves the machines of both children */
#define TUTTI_PATTERN_COUNT 4u

/* tutti_graph.flags. */
#define TUTTI_GRAPH_FALLBACK 1u /* the search found no channel: ranks are ascending, regardless of the links */

#define TUTTI_NO_NET UINT32_MAX

/* The channels of one machine, the result of its search. */
typedef struct tutti_graph {
  uint32_t struct_size;
  uint32_t node; /* the machine, < tutti_topology.node_count */
  uint32_t pattern;
  uint32_t rank_count;    /* number of ranks of the machine */
  uint32_t channel_count; /* number of channels, best first */
  uint32_t flags;
  uint32_t intra_type;    /* TUTTI_PATH_*: the farthest path between two ranks of a channel */
  uint32_t inter_type;    /* the farthest path between a rank and its network device; LOC without network */
  uint32_t same_channels; /* 1: all channels have the same order */
  uint32_t cross_nic;     /* 1: a channel may enter and leave by different adapters */
  double intra_gbs;       /* GB/s of each channel between two of its ranks */
  double inter_gbs;       /* GB/s of each channel into and out of the machine; 0 without network */
  const uint32_t* orders; /* channel_count × rank_count: ranks (of the communicator) along each channel */
  const uint32_t* nets;   /* channel_count × 2: network devices of entry and exit; TUTTI_NO_NET: any device */
} tutti_graph;

#ifdef __cplusplus
}
#endif
