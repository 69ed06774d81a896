// SPDX-License-Identifier: Apache-2.0
// The binary interface between a plugin and its host, Tutti. Compiles as C11, C++20 and with nvcc.
//
// A plugin is a shared object `tutti-<kind>-<name>.so`. It exports one symbol, tutti_plugin_entry_v1, and contains one
// ELF note. The host reads kind, name and versions from the note before it runs any code of the plugin. The interface
// is C: tables of functions that begin with their own size. C++ authors derive from the classes in tutti/sdk/ and do
// not see the tables.
//
// The rules (checks and messages cite their numbers):
// PLG-1: A plugin exports one symbol, tutti_plugin_entry_v1; `_v1` is the version of the structs of this header. All
// other symbols are hidden.
// PLG-2: The ELF note and the table that the entry returns agree.
// PLG-3: Static constructors do nothing. Before `open`, a plugin starts no thread, calls no CUDA function and reads no
// environment variable.
// PLG-4: No C++ type, exception, errno or allocator crosses the interface. The side that allocated memory frees it.
// PLG-5: Every table, and every struct that may grow, begins with `uint32_t struct_size`. Before a call, the caller
// sets it to the bytes that it knows. The writer of an output sets it to the bytes that it wrote, at most the
// caller's bytes. Readers treat fields beyond this size as zero. Growing structs never lie within a struct or an
// array. The settings of a plugin are the exception: they lie struct_size bytes apart.
// PLG-6: Integers have a fixed width. A string is a pointer and a length, in UTF-8, without a terminator. It is valid
// during the call, unless its declaration states a longer life.
// PLG-7: From ABI 1.0 of a kind on, its tables and structs grow only at their end. A removed entry keeps its
// place and returns TUTTI_UNSUPPORTED.
// PLG-8: If a plugin sets a capability bit, the entries of this capability exist and fulfil their contracts. The host
// calls no entry whose bit is not set. The loader checks that the entries exist. For networks, `tutti plugin test`
// checks their behaviour. A plugin sets no bit that its ABI does not define.
// PLG-9: Entries marked [progress] never block. `send`, `recv` and `flush` of networks leave the request null if they
// cannot begin. `test` reports "not done". `arm` and `run` return TUTTI_AGAIN.
// PLG-10: Each entry has a thread rule: [setup] one thread at a time per context, or per instance if the entry takes no
// context; [progress] one thread at a time per connection; [any] any thread at any time. Entries of different
// connections may run at the same time, and beside [setup] entries.
// PLG-11: The host closes children first: connections, listeners, contexts, then the instance.
// PLG-12: All output goes through host->log. A plugin writes nothing to stdout or stderr.
// PLG-13: A plugin reads only its own settings, through host->config_get. The host has checked them against the
// declared keys. A network also reads "timeouts.peer_loss" and "net.failover".
// PLG-14: Before a function returns a failure, it passes the reason to host->fail, in the same thread.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tutti/plugin/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI of each kind of plugins. This header has the version of each kind. With ABI 0.x of a kind, host and plugin
   must match exactly. From 1.0 on, a host takes plugins of its major version and of any minor version up to its own. */
#define TUTTI_ALGORITHM_ABI_MAJOR 0u
#define TUTTI_ALGORITHM_ABI_MINOR 15u
#define TUTTI_PROTOCOL_ABI_MAJOR 0u
#define TUTTI_PROTOCOL_ABI_MINOR 17u
#define TUTTI_NETWORK_ABI_MAJOR 1u
#define TUTTI_NETWORK_ABI_MINOR 0u
#define TUTTI_TUNER_ABI_MAJOR 1u
#define TUTTI_TUNER_ABI_MINOR 2u

/* Plugin kinds. */
#define TUTTI_KIND_ALGORITHM 1u /* "algo" in file names */
#define TUTTI_KIND_PROTOCOL 2u  /* "proto" */
#define TUTTI_KIND_NETWORK 3u   /* "net" */
#define TUTTI_KIND_TUNER 4u     /* "tuner" */

/* Log levels of host->log. */
#define TUTTI_LOG_ERROR 1
#define TUTTI_LOG_WARN 2
#define TUTTI_LOG_INFO 3
#define TUTTI_LOG_DEBUG 4
#define TUTTI_LOG_TRACE 5

typedef struct tutti_str {
  const char* data;
  uint64_t size;
} tutti_str;

/* Types of a plugin's settings. Durations are nanoseconds and sizes are bytes, both in tutti_value.integer. */
#define TUTTI_CONFIG_BOOL 1u
#define TUTTI_CONFIG_INTEGER 2u
#define TUTTI_CONFIG_SIZE 3u
#define TUTTI_CONFIG_DURATION 4u
#define TUTTI_CONFIG_TEXT 5u
#define TUTTI_CONFIG_LIST 6u

/* One setting of a plugin, `settings.<kind>.<plugin>.<name>` in the configuration. */
typedef struct tutti_config_key {
  uint32_t struct_size;
  uint32_t type;
  tutti_str name;
  tutti_str default_text; /* in the syntax of YAML: "4", "128KiB", "[eth, ib]" */
  tutti_str help;         /* one sentence */
  int64_t minimum;        /* of numbers. If minimum > maximum: no limits, but sizes and durations are >= 0 */
  int64_t maximum;
} tutti_config_key;

/* The effective value of a setting. Strings are valid until the plugin is closed. */
typedef struct tutti_value {
  uint32_t struct_size;
  uint32_t type;
  int64_t integer;
  tutti_str text;
  const tutti_str* list;
  uint64_t list_count;
} tutti_value;

/* The functions of the host. Valid from `open` to `close`. Each instance of a plugin has a host of its own, and a
   process may have several instances. Threads: every entry is [any]. */
typedef struct tutti_host {
  uint32_t struct_size;
  uint16_t abi_major; /* the ABI of the plugin's kind that the host has */
  uint16_t abi_minor;
  void* context; /* first argument of every entry below */
  void (*log)(void* context, int32_t level, tutti_str text);
  /* Stores the reason of the failure that this thread is about to return (PLG-14). */
  void (*fail)(void* context, tutti_str text);
  /* A setting that the plugin declares, or an exception of PLG-13. TUTTI_NOT_FOUND: the name is none of these. */
  int32_t (*config_get)(void* context, tutti_str name, tutti_value* out);
} tutti_host;

/* The description of a plugin. Strings and tables are valid as long as the shared object is loaded. */
typedef struct tutti_plugin {
  uint32_t struct_size;
  uint32_t kind;
  uint16_t abi_major; /* the ABI of the kind that the plugin is built for */
  uint16_t abi_minor;
  uint32_t reserved;
  tutti_str name;
  tutti_str version;
  tutti_str description;               /* one line for `tutti plugin list` */
  uint64_t capabilities;               /* networks: TUTTI_NET_CAP_*; other kinds have none: 0 */
  const tutti_config_key* config_keys; /* of equal struct_size */
  uint64_t config_key_count;
  /* Creates the plugin's instance. Fails if the plugin cannot run on this machine, with the reason in host->fail.
     [setup] */
  int32_t (*open)(const tutti_host* host, void** self);
  /* [setup] */
  void (*close)(void* self);
  /* The table of the plugin's kind: tutti_network_ops, tutti_algorithm_ops, tutti_protocol_ops or tutti_tuner_ops. */
  const void* ops;
} tutti_plugin;

/* The only export; each plugin defines it. Fills `out`, which has room for out->struct_size bytes. No side effects. */
__attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out);
typedef int32_t (*tutti_plugin_entry_fn)(tutti_plugin* out);
#define TUTTI_PLUGIN_ENTRY_NAME "tutti_plugin_entry_v1"

/* The ELF note: owner "Tutti", type TUTTI_NOTE_TYPE, descriptor tutti_plugin_note, in section .note.tutti. */
#define TUTTI_NOTE_OWNER "Tutti"
#define TUTTI_NOTE_TYPE 1u
#define TUTTI_NOTE_LAYOUT 1u

typedef struct tutti_plugin_note {
  uint32_t layout; /* TUTTI_NOTE_LAYOUT */
  uint32_t kind;
  uint16_t abi_major;
  uint16_t abi_minor;
  uint32_t cuda_major;    /* 0: no device code */
  char name[32];          /* zero-terminated */
  char version[32];       /* zero-terminated */
  char architectures[64]; /* "90 100": the SM versions of its kernels, zero-terminated */
} tutti_plugin_note;

#ifdef __cplusplus
}
#endif
