// SPDX-License-Identifier: Apache-2.0
// The system graph: what one machine is made of, what joins its parts, and the best path between any two of them. Made
// by the host, read by algorithm plugins. C11, C++20 and nvcc clean.
//
// Everything is borrowed for the call it is passed to, and read-only.
#pragma once

#include <stdint.h>

#include "tutti/plugin/abi.h"
#include "tutti/plugin/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Types of nodes. A rank sits on a GPU or, where it computes on the CPU, on a HOST node. */
#define TUTTI_NODE_GPU 0u
#define TUTTI_NODE_HOST 1u /* one rank of the host device, beside the CPU it runs on */
#define TUTTI_NODE_PCI 2u  /* PCI switch or bridge */
#define TUTTI_NODE_NVS 3u  /* NVSwitch: all switches of the machine as one */
#define TUTTI_NODE_CPU 4u  /* NUMA node */
#define TUTTI_NODE_NIC 5u  /* network adapter */
#define TUTTI_NODE_NET 6u  /* port of an adapter: a device of a network plugin */
#define TUTTI_NODE_TYPE_COUNT 7u

/* Types of wires. */
#define TUTTI_WIRE_LOC 0u /* within a device */
#define TUTTI_WIRE_NVL 1u /* NVLink, xGMI between GPUs */
#define TUTTI_WIRE_C2C 2u /* chip to chip: a CPU and its GPU on one module */
#define TUTTI_WIRE_PCI 3u
#define TUTTI_WIRE_SYS 4u /* between CPUs */
#define TUTTI_WIRE_NET 5u /* NIC to its port */
#define TUTTI_WIRE_TYPE_COUNT 6u

/* Types of paths, closest first. The type of a path is its worst part's. */
#define TUTTI_PATH_LOC 0u /* the node itself */
#define TUTTI_PATH_NVL 1u /* NVLink, directly or over NVSwitch; between NIC and port: the port */
#define TUTTI_PATH_NVB 2u /* NVLink over one GPU in between */
#define TUTTI_PATH_C2C 3u
#define TUTTI_PATH_PIX 4u  /* one PCI switch */
#define TUTTI_PATH_PXB 5u  /* several PCI switches, no CPU */
#define TUTTI_PATH_P2C 6u  /* chip to chip to the CPU, PCI from there */
#define TUTTI_PATH_PXN 7u  /* to a NIC over NVLink and another GPU */
#define TUTTI_PATH_PHB 8u  /* through one CPU */
#define TUTTI_PATH_SYS 9u  /* from one CPU to another */
#define TUTTI_PATH_NET 10u /* over the network */
#define TUTTI_PATH_DIS 11u /* none */
#define TUTTI_PATH_TYPE_COUNT 12u

/* tutti_system_node.chip of a CPU. */
#define TUTTI_CPU_UNKNOWN 0u
#define TUTTI_CPU_INTEL 1u
#define TUTTI_CPU_AMD 2u
#define TUTTI_CPU_ARM 3u
#define TUTTI_CPU_POWER 4u
#define TUTTI_CPU_ZHAOXIN 5u

/* tutti_system_node.flags. */
#define TUTTI_NODE_DIRECT 1u /* GPU, NET: the network may read and write GPU memory (GPUDirect RDMA) */
#define TUTTI_NODE_AMD 2u    /* GPU: an AMD GPU; `chip` is its gfx number (942) */

#define TUTTI_NO_RANK UINT32_MAX

typedef struct tutti_system_node {
  uint32_t type;
  uint32_t index; /* GPU: device number; CPU: NUMA node; NET: device of the network plugin; else: counts per type */
  uint64_t id;   /* PCI address as domain << 20 | bus << 12 | device << 4 | function; NET: the adapter's GUID; else 0 */
  uint32_t rank; /* GPU and HOST: rank in the communicator, or TUTTI_NO_RANK */
  uint32_t chip; /* GPU: compute capability × 10 (90) or gfx number; CPU: TUTTI_CPU_*; else 0 */
  uint32_t flags;
  uint32_t port;     /* NET: port of the adapter */
  double latency_us; /* NET: one way, small message; 0: unknown */
} tutti_system_node;

/* A wire in one direction. */
typedef struct tutti_system_link {
  uint32_t from;    /* node */
  uint32_t to;      /* node */
  uint32_t type;    /* TUTTI_WIRE_* */
  uint32_t reverse; /* the link of the other direction */
  double gbs;       /* GB/s (1e9 bytes) */
} tutti_system_link;

/* The best path from one node to another. */
typedef struct tutti_system_path {
  uint32_t type;      /* TUTTI_PATH_* */
  uint32_t hop_begin; /* in tutti_system.hops */
  uint32_t hop_count; /* 0: none (DIS), or the node itself (LOC) */
  uint32_t reserved;
  double gbs; /* of its narrowest link; LOC: that of memory; DIS: 0 */
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

/* Kinds of links between two ranks, as protocols and costs tell them apart. */
#define TUTTI_LINK_SHM 0u     /* shared memory of one host */
#define TUTTI_LINK_NETWORK 1u /* a network plugin */
#define TUTTI_LINK_P2P 2u     /* device to device */
#define TUTTI_LINK_COUNT 3u

/* What an algorithm may know of the ranks and what joins them. */
typedef struct tutti_topology {
  uint32_t struct_size;
  uint32_t rank_count;
  uint32_t node_count;   /* machines */
  uint32_t min_channels; /* wanted at least, at most; search may find fewer, connect may repeat what it found */
  uint32_t max_channels;
  uint32_t reserved;
  const uint32_t* node_of_rank;           /* rank_count entries, each < node_count */
  double bandwidth_gbs[TUTTI_LINK_COUNT]; /* GB/s (1e9 bytes) one rank reaches over a link of this kind, one direction;
                                             0: no such link */
  double latency_us[TUTTI_LINK_COUNT];    /* time of one small message, one way */
  double gap_us[TUTTI_LINK_COUNT];        /* time after which a rank can send the next one */
  double memory_gbs;                      /* GB/s of a rank's own memory, reads and writes together; 0: unknown */
  const tutti_system* system; /* search: the machine of the rank that searches; null in connect, and in search where
                                 nothing is known of it */
  tutti_str gpu_name; /* "NVIDIA H200", of all ranks' GPUs; where they differ every name, joined by " + "; empty: the
                         ranks compute on the host, or nothing is known */
} tutti_topology;

/* Patterns of channels in one machine. */
#define TUTTI_PATTERN_RING 0u /* order[0] receives from the machine before, the last sends to the next */
#define TUTTI_PATTERN_TREE 1u /* a chain from order[0], which talks to the parent's and both children's machines */
#define TUTTI_PATTERN_BALANCED_TREE 2u /* likewise, but the second child's machine is served by order[1] */
#define TUTTI_PATTERN_SPLIT_TREE 3u    /* likewise, but both children's machines are served by order[1] */
#define TUTTI_PATTERN_COUNT 4u

/* tutti_graph.flags. */
#define TUTTI_GRAPH_FALLBACK 1u /* the search found nothing; ranks ascending, whatever joins them */

#define TUTTI_NO_NET UINT32_MAX

/* The channels of one machine, as its search reports them. */
typedef struct tutti_graph {
  uint32_t struct_size;
  uint32_t node; /* the machine, < tutti_topology.node_count */
  uint32_t pattern;
  uint32_t rank_count;    /* of the machine */
  uint32_t channel_count; /* best first */
  uint32_t flags;
  uint32_t intra_type;    /* TUTTI_PATH_*: the farthest path between two ranks of a channel */
  uint32_t inter_type;    /* the farthest path between a rank and its network device; LOC without network */
  uint32_t same_channels; /* 1: all channels have one order */
  uint32_t cross_nic;     /* 1: a channel may leave by another adapter than it enters */
  double intra_gbs;       /* GB/s each channel has between two of its ranks */
  double inter_gbs;       /* GB/s each channel has into and out of the machine; 0 without network */
  const uint32_t* orders; /* channel_count × rank_count: ranks (of the communicator) along each channel */
  const uint32_t* nets;   /* channel_count × 2: network devices by which it enters and leaves; TUTTI_NO_NET: any */
} tutti_graph;

#ifdef __cplusplus
}
#endif
