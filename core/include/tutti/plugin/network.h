// SPDX-License-Identifier: Apache-2.0
// The network plugin: search lists devices, connect makes connections and registers memory, primitives send and
// receive.
//
// Connections are one way: the sender connects, the receiver listens and accepts. All calls that move data are
// [progress]: they post and return; `test` tells when a request is done. A [progress] entry does not block, and returns
// within about 100 µs and the time of a copy of its message: all connections of a rank wait meanwhile. A [setup] entry
// may take longer. Connections are made at their first use: `connect` and `accept` are asked again until the time
// "timeouts.operation" of the call has passed.
//
// Tags. Messages of one connection with the same tag match receives in the order posted. Messages with different tags
// may overtake each other. A message without a receive waits, and may keep all later messages of its connection back.
// The host posts receives of a connection without waiting for messages of this connection, so the wait ends. Requests
// may complete in any order.
//
// Failures. A request reports only its own failure: a broken connection fails the requests that cannot complete any
// more, and each later post. A complete send says that its buffer is free, not that the message has arrived: it may be
// lost if the connection breaks later. A complete receive holds the whole message, also if the connection broke after
// the message had come. TUTTI_REMOTE says that a connection is broken, because the peer closed it, or because the
// peer's machine did not answer for longer than "timeouts.peer_loss". The text names the addresses of both ends. The
// host decides the meaning of a break: after TUTTI_REMOTE, it waits for news of the peer. Any other failure ends the
// communicator at once. A failure of `accept` does, too, so strangers must not cause one.
//
// Lengths. `test` reports the bytes of each received message. The host puts a record behind each message, or sends it
// as a message of its own, and checks with it the length, the order, and that no message is lost or repeated. A
// difference is an error that names the network.
//
// Memory of GPUs. The host registers it by register_dmabuf if the device reports TUTTI_MEMORY_DMABUF and the GPU
// exports dmabufs. It closes the descriptor after the entry. Else it registers pointers if the device reports
// TUTTI_MEMORY_CUDA. Else data goes through memory of the host. The GPU reads received data after the `flush` that
// follows the receive, or after the receive if the plugin has no TUTTI_NET_CAP_FLUSH. A flush concerns only the memory
// that it names.
//
// Files of code. A text setting "file" may name a shared object that the plugin loads in `open`. The configuration may
// also give it as NETWORK:FILE. The host checks a path against plugins.trust before `open`.
#pragma once

#include "tutti/plugin/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Capabilities. */
#define TUTTI_NET_CAP_GROUPED_RECV 0x1u  /* recv takes up to max_grouped_recvs buffers with different tags */
#define TUTTI_NET_CAP_DEVICE_MEMORY 0x2u /* registers TUTTI_MEMORY_CUDA */
#define TUTTI_NET_CAP_DMABUF 0x4u        /* register_dmabuf is there */
#define TUTTI_NET_CAP_FLUSH 0x8u         /* device memory needs `flush` after a receive; the entry is there */
#define TUTTI_NET_CAP_EVENT_FD 0x10u     /* event_fd and arm are there: a progress thread can sleep */

#define TUTTI_NET_HANDLE_BYTES 128u
/* Requests that may be outstanding on one connection: the plugin takes at least this many. */
#define TUTTI_NET_MIN_REQUESTS 64u

typedef struct tutti_net_properties {
  uint32_t struct_size;
  uint32_t port;
  tutti_str name;             /* "eth0", "mlx5_0"; lives until the context is closed */
  tutti_str pci_path;         /* sysfs path, empty for a virtual device */
  uint64_t guid;              /* the same for every port of one physical device */
  uint32_t memory;            /* TUTTI_MEMORY_* bits it can register */
  uint32_t max_grouped_recvs; /* >= 1 */
  double speed_gbs;           /* GB/s, one direction; 0: unknown */
  double latency_us;          /* one way, small message; 0: unknown */
  uint64_t max_message_bytes; /* per request */
  uint32_t max_connections;   /* connections of this rank at the same time, made or accepted; 0: no known limit */
  int32_t rail;               /* the part of the network that joins this port with other ports; -1: unknown */
} tutti_net_properties;

/* Address of a listener, sent to the connecting side as opaque bytes. */
typedef struct tutti_net_handle {
  uint8_t bytes[TUTTI_NET_HANDLE_BYTES];
} tutti_net_handle;

typedef struct tutti_network_ops {
  uint32_t struct_size;
  uint32_t reserved;
  /* A context per communicator. `communicator` is the same number on all its ranks. [setup] */
  int32_t (*create)(void* self, uint64_t communicator, void** context);
  void (*destroy)(void* context);

  /* search [setup] */
  int32_t (*device_count)(void* context, uint32_t* count);
  int32_t (*properties)(void* context, uint32_t device, tutti_net_properties* out);

  /* connect [setup]; connect and accept do not block: TUTTI_AGAIN until the connection stands, then called again with
     the same arguments and the same `state` (null at the first call; the plugin's until it returns another code).
     connect may succeed before the peer accepts. A rank that waits for no connection calls accept seldom or never. */
  int32_t (*listen)(void* context, uint32_t device, tutti_net_handle* handle, void** listener);
  int32_t (*connect)(void* context, uint32_t device, const tutti_net_handle* handle, void** state, void** connection);
  int32_t (*accept)(void* listener, void** state, void** connection);
  /* Gives up a connect or accept that returned TUTTI_AGAIN. [setup]; not called if `state` is null. */
  void (*cancel)(void* state);
  /* `memory` is one TUTTI_MEMORY_* value; `registration` may stay null. [progress] threads may also call these. */
  int32_t (*register_memory)(void* connection, void* address, uint64_t bytes, uint32_t memory, void** registration);
  int32_t (*register_dmabuf)(void* connection, void* address, uint64_t bytes, uint64_t offset, int32_t fd,
                             void** registration);
  int32_t (*deregister_memory)(void* connection, void* registration);

  /* primitives [progress]. *request stays null where nothing could be posted now (call again later). The host keeps the
     buffers of a request until it is done or has failed, or until its connection is closed. */
  int32_t (*send)(void* connection, const void* address, uint64_t bytes, uint32_t tag, void* registration,
                  void** request);
  /* `count` messages (1 unless GROUPED_RECV). Fails if a message is longer than its buffer, not by TUTTI_REMOTE. */
  int32_t (*recv)(void* connection, uint32_t count, void* const* addresses, const uint64_t* bytes, const uint32_t* tags,
                  void* const* registrations, void** request);
  /* Makes received device memory visible to the device. *request null on return: nothing to wait for. */
  int32_t (*flush)(void* connection, uint32_t count, void* const* addresses, const uint64_t* bytes,
                   void* const* registrations, void** request);
  /* Sets *done to 0 or 1. When done is 1, or if the entry fails, the request is gone: the host does not name it again.
   * For a receive that is done, bytes[i] (if not null) is the number of received bytes. Makes progress. */
  int32_t (*test)(void* request, int32_t* done, uint64_t* bytes);

  /* Closes at once, requests outstanding or not; afterwards the plugin touches none of their buffers. [setup] */
  void (*close_connection)(void* connection);
  void (*close_listener)(void* listener);

  /* TUTTI_NET_CAP_EVENT_FD: a descriptor that becomes readable when `test`, `connect` or `accept` may get further.
     `arm` prepares it: TUTTI_OK: sleep on it; TUTTI_AGAIN: there is work now. A request that became done while a
     different request was tested is work, too. One thread at a time per context. */
  int32_t (*event_fd)(void* context, int32_t* fd);
  int32_t (*arm)(void* context);
} tutti_network_ops;

#ifdef __cplusplus
}
#endif
