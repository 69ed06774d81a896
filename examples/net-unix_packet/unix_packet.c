// SPDX-License-Identifier: Apache-2.0
// A network plugin in C11: each connection is a Unix socket of type SOCK_SEQPACKET between two processes of one
// machine. A packet is a tag and the data of one message, so the kernel keeps the ends of messages and their order.
// Replace the calls of sockets by the calls of a device. Numbers such as NET-12 name the rules of `tutti plugin test`.
#define _GNU_SOURCE  // accept4
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tutti/plugin/network.h"

enum {
  TAG_BYTES = sizeof(uint32_t),
  SECRET_BYTES = 16,
  NAME_BYTES = 6,                 // of an abstract address that the kernel chose: a zero and five characters
  SEND_BUFFER_BYTES = 1 << 20,    // asked for; the kernel may give less
  KERNEL_BYTES = 32,              // of the send buffer, which a packet cannot use
  MOST_PACKET_BYTES = 256 << 10,  // the kernel holds most of a packet in one piece, which must not be too large
  WORK_BYTES = 256 << 10,         // copied by one call of `test`: [progress] entries must be short (NET-35)
  SYSTEM_CALL_BYTES = 4096,       // the time of a system call, as bytes of a copy
  MOST_GUESTS = 64,               // connections of a listener that have not sent the secret
};

struct context {
  const tutti_host* host;
  int epoll;             // watches every socket, edge-triggered
  atomic_bool has_work;  // work that causes no edge: `arm` must not let the thread sleep (NET-36)
  uint64_t max_message_bytes;
};

struct request {
  struct connection* connection;
  struct request* next;  // in the list `posted` or `unused` of its connection
  void* data;
  uint64_t bytes;     // of the message of a send, or of the buffer of a receive
  uint64_t received;  // bytes of the message of a receive; more than `bytes` if it was too long
  uint32_t tag;
  bool is_complete;
};

// One direction: the end that connected sends, and the end that accepted receives.
struct connection {
  struct context* context;
  int socket;
  bool is_sender;
  int fault;               // the errno that broke the connection, 0: none
  char ends[32];           // the addresses of both ends
  struct request* posted;  // not complete, oldest first
  struct request** end;    // the null pointer at the end of `posted`
  struct request* unused;
  struct request requests[TUTTI_NET_MIN_REQUESTS];
};

struct listener {
  struct context* context;
  int socket;
  uint8_t secret[SECRET_BYTES];
  int guests[MOST_GUESTS];  // connections that have not sent the secret yet; -1: none
  uint32_t next_guest;      // the place of the next guest
};

// The content of a tutti_net_handle.
struct contact {
  char name[NAME_BYTES];
  uint8_t secret[SECRET_BYTES];
};

// Gives the reason of a failure to the host (PLG-14), and returns `code`.
__attribute__((format(printf, 3, 4))) static int32_t fail(const tutti_host* host, int32_t code, const char* format,
                                                          ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  host->fail(host->context, (tutti_str){text, strlen(text)});
  return code;
}

static bool is_end_of_peer(int fault) {
  return fault == EPIPE || fault == ECONNRESET || fault == ECONNREFUSED;
}

// Faults that pass: nothing to do now, or no memory in the kernel.
static bool is_passing(int fault) {
  return fault == EAGAIN || fault == EINTR || fault == ENOBUFS || fault == ENOMEM;
}

static int32_t fail_broken(const struct connection* c) {
  return fail(c->context->host, is_end_of_peer(c->fault) ? TUTTI_REMOTE : TUTTI_SYSTEM,
              "the connection %s is broken: %s", c->ends, strerror(c->fault));
}

static bool watch(const struct context* context, int socket) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
  return epoll_ctl(context->epoll, EPOLL_CTL_ADD, socket, &event) == 0;
}

// Makes a socket that the context watches. It gets an address that the kernel chooses. -1: failed, see errno.
static int make_socket(const struct context* context) {
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int bytes = SEND_BUFFER_BYTES;
  const struct sockaddr none = {.sa_family = AF_UNIX};
  if (made >= 0 && setsockopt(made, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0 &&
      bind(made, &none, sizeof none.sa_family) == 0 && watch(context, made)) {
    return made;
  }
  const int fault = errno;
  if (made >= 0) close(made);
  errno = fault;
  return -1;
}

static void destroy(void* self) {
  struct context* const context = self;
  if (context->epoll >= 0) close(context->epoll);
  free(context);
}

// The instance of the plugin is the table of the host, because it has no other state.
static int32_t create(void* self, uint64_t communicator, void** out) {
  const tutti_host* const host = self;
  (void)communicator;
  struct context* const context = calloc(1, sizeof *context);
  if (context == NULL) return fail(host, TUTTI_SYSTEM, "no memory for a context");
  context->host = host;
  context->epoll = epoll_create1(EPOLL_CLOEXEC);
  const int probe = make_socket(context);
  int room = 0;
  socklen_t size = sizeof room;
  const bool has_room = probe >= 0 && getsockopt(probe, SOL_SOCKET, SO_SNDBUF, &room, &size) == 0;
  if (!has_room) fail(host, TUTTI_SYSTEM, "cannot make a socket: %s", strerror(errno));
  if (probe >= 0) close(probe);
  if (!has_room) return destroy(context), TUTTI_SYSTEM;
  const int packet_bytes = room - KERNEL_BYTES < MOST_PACKET_BYTES ? room - KERNEL_BYTES : MOST_PACKET_BYTES;
  context->max_message_bytes = (uint64_t)packet_bytes - TAG_BYTES;
  *out = context;
  return TUTTI_OK;
}

static int32_t device_count(void* context, uint32_t* count) {
  (void)context;
  *count = 1;
  return TUTTI_OK;
}

// Writes at most the bytes that the caller knows (PLG-5).
static int32_t properties(void* self, uint32_t device, tutti_net_properties* out) {
  const struct context* const context = self;
  if (device != 0) return fail(context->host, TUTTI_INVALID_ARGUMENT, "there is no device %u", device);
  const uint32_t known = out->struct_size < sizeof *out ? out->struct_size : (uint32_t)sizeof *out;
  const tutti_net_properties device0 = {
      .struct_size = known,
      .name = {"packet0", sizeof "packet0" - 1},
      .memory = TUTTI_MEMORY_HOST,
      .max_grouped_recvs = 1,
      .max_message_bytes = context->max_message_bytes,
      .rail = -1,
  };
  memcpy(out, &device0, known);
  return TUTTI_OK;
}

static void close_connection(void* self) {
  struct connection* const c = self;
  close(c->socket);
  free(c);
}

// Takes over the socket. Null: no memory, as the host has been told.
static struct connection* make_connection(struct context* context, int socket, bool is_sender) {
  struct connection* const c = calloc(1, sizeof *c);
  if (c == NULL) {
    fail(context->host, TUTTI_SYSTEM, "no memory for a connection");
    close(socket);
    return NULL;
  }
  c->context = context;
  c->socket = socket;
  c->is_sender = is_sender;
  c->end = &c->posted;
  for (uint32_t i = 0; i < TUTTI_NET_MIN_REQUESTS; ++i) {
    c->requests[i].next = c->unused;
    c->unused = &c->requests[i];
  }
  return c;
}

// Stores the addresses of both ends, for texts of failures.
static void note_ends(struct connection* c) {
  struct sockaddr_un own = {0}, peer = {0};
  socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
  getsockname(c->socket, (struct sockaddr*)&own, &own_bytes);
  getpeername(c->socket, (struct sockaddr*)&peer, &peer_bytes);
  snprintf(c->ends, sizeof c->ends, "%s @%.5s %s @%.5s", c->is_sender ? "from" : "to", own.sun_path + 1,
           c->is_sender ? "to" : "from", peer.sun_path + 1);
}

static void close_listener(void* self) {
  struct listener* const l = self;
  for (int i = 0; i < MOST_GUESTS; ++i) {
    if (l->guests[i] >= 0) close(l->guests[i]);
  }
  if (l->socket >= 0) close(l->socket);
  free(l);
}

static int32_t listen_at(void* self, uint32_t device, tutti_net_handle* handle, void** out) {
  struct context* const context = self;
  (void)device;
  struct listener* const l = calloc(1, sizeof *l);
  if (l == NULL) return fail(context->host, TUTTI_SYSTEM, "no memory for a listener");
  for (int i = 0; i < MOST_GUESTS; ++i) l->guests[i] = -1;
  l->context = context;
  l->socket = make_socket(context);
  struct sockaddr_un address = {0};
  socklen_t size = sizeof address;
  if (l->socket < 0 || getsockname(l->socket, (struct sockaddr*)&address, &size) != 0 ||
      getrandom(l->secret, SECRET_BYTES, 0) != SECRET_BYTES || listen(l->socket, SOMAXCONN) != 0) {
    fail(context->host, TUTTI_SYSTEM, "cannot listen: %s", strerror(errno));
    close_listener(l);
    return TUTTI_SYSTEM;
  }
  struct contact contact;
  memcpy(contact.name, address.sun_path, NAME_BYTES);
  memcpy(contact.secret, l->secret, SECRET_BYTES);
  memset(handle, 0, sizeof *handle);
  memcpy(handle->bytes, &contact, sizeof contact);
  *out = l;
  return TUTTI_OK;
}

// Connects and sends the secret. The state is the connection that does not stand yet.
static int32_t connect_to(void* self, uint32_t device, const tutti_net_handle* handle, void** state, void** out) {
  struct context* const context = self;
  struct connection* c = *state;
  (void)device;
  if (c == NULL) {
    const int made = make_socket(context);
    if (made < 0) return fail(context->host, TUTTI_SYSTEM, "cannot make a socket: %s", strerror(errno));
    c = make_connection(context, made, true);
    if (c == NULL) return TUTTI_SYSTEM;
  }
  struct contact contact;
  memcpy(&contact, handle->bytes, sizeof contact);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  memcpy(address.sun_path, contact.name, NAME_BYTES);
  const socklen_t size = offsetof(struct sockaddr_un, sun_path) + NAME_BYTES;
  const bool is_connected = connect(c->socket, (struct sockaddr*)&address, size) == 0 || errno == EISCONN;
  if (is_connected && send(c->socket, contact.secret, SECRET_BYTES, MSG_NOSIGNAL) == SECRET_BYTES) {
    note_ends(c);
    *out = c;
    return TUTTI_OK;
  }
  const int fault = errno;
  if (is_passing(fault)) {  // the queue of the listener is full, which causes no edge when it has room
    atomic_store(&context->has_work, true);
    *state = c;
    return TUTTI_AGAIN;
  }
  close_connection(c);
  return fail(context->host, is_end_of_peer(fault) ? TUTTI_REMOTE : TUTTI_SYSTEM,
              "process %d cannot connect to @%.5s: %s", (int)getpid(), contact.name + 1, strerror(fault));
}

// Strangers cause no failure (NET-12). A guest that stays silent has to go when MOST_GUESTS others came after it.
static int32_t accept_guest(void* self, void** state, void** out) {
  struct listener* const l = self;
  (void)state;
  const int newest = accept4(l->socket, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (newest >= 0 || errno != EAGAIN) atomic_store(&l->context->has_work, true);  // more guests cause no edge
  if (newest >= 0) {
    int* const place = &l->guests[l->next_guest++ % MOST_GUESTS];
    if (*place >= 0) close(*place);
    *place = watch(l->context, newest) ? newest : (close(newest), -1);
  }
  for (int i = 0; i < MOST_GUESTS; ++i) {
    const int guest = l->guests[i];
    if (guest < 0) continue;
    uint8_t word[SECRET_BYTES + 1];
    const ssize_t size = recv(guest, word, sizeof word, 0);
    if (size < 0 && is_passing(errno)) continue;
    l->guests[i] = -1;
    if (size != SECRET_BYTES || memcmp(word, l->secret, SECRET_BYTES) != 0) {
      close(guest);
      continue;
    }
    struct connection* const c = make_connection(l->context, guest, false);
    if (c == NULL) return TUTTI_SYSTEM;
    note_ends(c);
    *out = c;
    return TUTTI_OK;
  }
  return TUTTI_AGAIN;
}

static int32_t register_memory(void* self, void* address, uint64_t bytes, uint32_t memory, void** registration) {
  (void)address, (void)bytes, (void)registration;
  if (memory == TUTTI_MEMORY_HOST) return TUTTI_OK;
  return fail(((struct connection*)self)->context->host, TUTTI_UNSUPPORTED, "there is no memory of kind %u", memory);
}

static int32_t deregister_memory(void* self, void* registration) {
  (void)self, (void)registration;
  return TUTTI_OK;
}

// Adds a request at the end of `posted`. Null: all requests are in use.
static struct request* post(struct connection* c, void* data, uint64_t bytes, uint32_t tag) {
  struct request* const request = c->unused;
  if (request == NULL) return NULL;
  c->unused = request->next;
  *request = (struct request){.connection = c, .data = data, .bytes = bytes, .tag = tag};
  *c->end = request;
  c->end = &request->next;
  return request;
}

// Takes the request at `place` out of `posted`.
static void unlink_request(struct connection* c, struct request** place) {
  struct request* const request = *place;
  *place = request->next;
  if (c->end == &request->next) c->end = place;
}

// The host may have tested the request before in this round, so `arm` sends it around again.
static void complete(struct connection* c, struct request** place) {
  (*place)->is_complete = true;
  unlink_request(c, place);
  atomic_store(&c->context->has_work, true);
}

static void note_fault(struct connection* c, int fault) {
  if (!is_passing(fault)) c->fault = fault;
  if (fault != EAGAIN) atomic_store(&c->context->has_work, true);
}

// Sends the oldest message. Returns its packet's bytes; 0: not now, or the connection is broken.
static uint64_t send_packet(struct connection* c) {
  struct request* const request = c->posted;
  struct iovec parts[2] = {{&request->tag, sizeof request->tag}, {request->data, request->bytes}};
  const struct msghdr packet = {.msg_iov = parts, .msg_iovlen = 2};
  const ssize_t sent = sendmsg(c->socket, &packet, MSG_NOSIGNAL);
  if (sent < 0) return note_fault(c, errno), 0;
  complete(c, &c->posted);
  return (uint64_t)sent;
}

// Receives the next packet into the oldest receive of its tag. The packet waits in the socket if there is none
// (NET-24). Returns the bytes of the packet; 0: not now, or the connection is broken.
static uint64_t receive_packet(struct connection* c) {
  uint32_t tag = 0;
  const ssize_t seen = recv(c->socket, &tag, sizeof tag, MSG_PEEK);
  if (seen != sizeof tag) {
    note_fault(c, seen < 0 ? errno : seen == 0 ? ECONNRESET : EPROTO);
    return 0;
  }
  struct request** place = &c->posted;
  while (*place != NULL && (*place)->tag != tag) place = &(*place)->next;
  if (*place == NULL) return 0;
  struct iovec parts[2] = {{&tag, sizeof tag}, {(*place)->data, (*place)->bytes}};
  struct msghdr packet = {.msg_iov = parts, .msg_iovlen = 2};
  const ssize_t size = recvmsg(c->socket, &packet, MSG_TRUNC);  // the bytes of the packet, not of the buffer
  if (size < 0) return note_fault(c, errno), 0;
  (*place)->received = (uint64_t)size - sizeof tag;
  complete(c, place);
  return (uint64_t)size;
}

static void make_progress(struct connection* c) {
  for (uint64_t work = 0; c->posted != NULL && c->fault == 0;) {
    if (work >= WORK_BYTES) {
      atomic_store(&c->context->has_work, true);
      return;
    }
    const uint64_t moved = c->is_sender ? send_packet(c) : receive_packet(c);
    if (moved == 0) return;
    work += moved + SYSTEM_CALL_BYTES;
  }
}

static int32_t post_send(void* self, const void* address, uint64_t bytes, uint32_t tag, void* registration,
                         void** out) {
  struct connection* const c = self;
  (void)registration;
  *out = NULL;
  if (c->fault != 0) return fail_broken(c);
  if (bytes > c->context->max_message_bytes) {
    return fail(c->context->host, TUTTI_INVALID_ARGUMENT, "a message of %llu bytes is longer than max_message_bytes",
                (unsigned long long)bytes);
  }
  *out = post(c, (void*)address, bytes, tag);
  make_progress(c);
  return TUTTI_OK;
}

static int32_t post_recv(void* self, uint32_t count, void* const* addresses, const uint64_t* bytes,
                         const uint32_t* tags, void* const* registrations, void** out) {
  struct connection* const c = self;
  (void)count, (void)registrations;
  *out = NULL;
  if (c->fault != 0) return fail_broken(c);
  *out = post(c, addresses[0], bytes[0], tags[0]);
  make_progress(c);  // a packet that waits for this receive causes no edge any more
  return TUTTI_OK;
}

// Returns the request of a failure or of a complete message to `unused`.
static int32_t test(void* self, int32_t* done, uint64_t* bytes) {
  struct request* const request = self;
  struct connection* const c = request->connection;
  if (!request->is_complete) make_progress(c);
  *done = 0;
  if (!request->is_complete && c->fault == 0) return TUTTI_OK;
  int32_t code = TUTTI_OK;
  if (!request->is_complete) {
    struct request** place = &c->posted;
    while (*place != request) place = &(*place)->next;
    unlink_request(c, place);
    code = fail_broken(c);
  } else if (request->received > request->bytes) {
    code = fail(c->context->host, TUTTI_MISMATCH, "a message of %llu bytes is longer than its buffer of %llu bytes",
                (unsigned long long)request->received, (unsigned long long)request->bytes);
  } else {
    *done = 1;
    if (bytes != NULL && !c->is_sender) bytes[0] = request->received;
  }
  request->next = c->unused;
  c->unused = request;
  return code;
}

static int32_t event_fd(void* context, int32_t* fd) {
  *fd = ((struct context*)context)->epoll;
  return TUTTI_OK;
}

// Takes all edges before it looks for work, so that an edge that comes later wakes the thread.
static int32_t arm(void* self) {
  struct context* const context = self;
  struct epoll_event events[64];
  const int edges = epoll_wait(context->epoll, events, sizeof events / sizeof events[0], 0);
  const bool has_work = atomic_exchange(&context->has_work, false);
  return edges != 0 || has_work ? TUTTI_AGAIN : TUTTI_OK;
}

static const tutti_network_ops ops = {
    .struct_size = sizeof(tutti_network_ops),
    .create = create,
    .destroy = destroy,
    .device_count = device_count,
    .properties = properties,
    .listen = listen_at,
    .connect = connect_to,
    .accept = accept_guest,
    .cancel = close_connection,
    .register_memory = register_memory,
    .deregister_memory = deregister_memory,
    .send = post_send,
    .recv = post_recv,
    .test = test,
    .close_connection = close_connection,
    .close_listener = close_listener,
    .event_fd = event_fd,
    .arm = arm,
};

static int32_t open_plugin(const tutti_host* host, void** self) {
  *self = (void*)host;  // valid until `close`
  return TUTTI_OK;
}

static void close_plugin(void* self) {
  (void)self;
}

#define TEXT(literal) \
  { (literal), sizeof(literal) - 1 }

__attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out) {
  const uint32_t known = out->struct_size < sizeof *out ? out->struct_size : (uint32_t)sizeof *out;
  const tutti_plugin plugin = {
      .struct_size = known,
      .kind = TUTTI_KIND_NETWORK,
      .abi_major = TUTTI_NETWORK_ABI_MAJOR,
      .abi_minor = TUTTI_NETWORK_ABI_MINOR,
      .name = TEXT("unix_packet"),
      .version = TEXT("1.0.0"),
      .description = TEXT("Unix sockets with packets between processes of one machine, in C"),
      .capabilities = TUTTI_NET_CAP_EVENT_FD,
      .open = open_plugin,
      .close = close_plugin,
      .ops = &ops,
  };
  memcpy(out, &plugin, known);
  return TUTTI_OK;
}
