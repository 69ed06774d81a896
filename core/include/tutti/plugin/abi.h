// SPDX-License-Identifier: Apache-2.0
// What every Tutti plugin and its host agree on. C11, C++20 and nvcc clean.
//
// A plugin is a shared object `tutti-<kind>-<name>.so` that exports one symbol, tutti_plugin_entry_v1, and carries one
// ELF note that says what it is before any of its code runs. What crosses the boundary is C: tables of functions that
// begin with their own size. C++ authors derive from the classes in tutti/sdk/ and never see these tables.
//
// The rules (cited by their numbers in checks and messages):
// PLG-1: One exported symbol, tutti_plugin_entry_v1; `_v1` is the ABI's major version. Everything else is hidden.
// PLG-2: The ELF note and the table returned by the entry agree.
// PLG-3: Nothing happens in static constructors; no thread, no CUDA call, no environment is read before `open`.
// PLG-4: No C++ type, exception, errno or allocator crosses. Memory is freed by the side that allocated it.
// PLG-5: Every table and every struct that may grow begins with `uint32_t struct_size`, set by its writer. Readers
// treat what lies beyond it as zero.
// PLG-6: Fixed-width integers; strings are pointer + length in UTF-8, not terminated; they live as long as the call
// unless said otherwise.
// PLG-7: Tables only grow at their end. A removed entry keeps its slot and returns TUTTI_UNSUPPORTED.
// PLG-8: A claimed capability bit means that the entries it names are there and do what their contract says. Unclaimed
// entries are never called. The loader checks that they are there; no conformance kit checks yet what they do.
// PLG-9: Entries marked [progress] never block: they return TUTTI_AGAIN or report "not done".
// PLG-10: Thread rule of each entry: [setup] one thread at a time per instance; [progress] one thread at a time per
// connection; [any] any thread at any time.
// PLG-11: Closing an object that still has open children is a failed precondition, not a crash.
// PLG-12: All output goes through host->log; nothing is written to stdout or stderr.
// PLG-13: A plugin reads only its own settings, through host->config_get; the host has checked them against the
// declared keys.
// PLG-14: A function that returns a failure has said why through host->fail, in the same thread, just before.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "tutti/plugin/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ABI 0.x: host and plugin must match exactly. From 1.0 on, a host takes every plugin of its major version. */
#define TUTTI_ABI_MAJOR 0u
#define TUTTI_ABI_MINOR 9u

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

/* One setting a plugin understands, at `settings.<kind>.<plugin>.<name>` in the configuration. */
typedef struct tutti_config_key {
  uint32_t struct_size;
  uint32_t type;
  tutti_str name;
  tutti_str default_text; /* as it would stand in YAML: "4", "128KiB", "[eth, ib]" */
  tutti_str help;         /* one sentence */
  int64_t minimum;        /* of integers, sizes and durations; where minimum > maximum, the last two start at 0 */
  int64_t maximum;
} tutti_config_key;

/* The effective value of a setting; strings live until the plugin is closed. */
typedef struct tutti_value {
  uint32_t struct_size;
  uint32_t type;
  int64_t integer;
  tutti_str text;
  const tutti_str* list;
  uint64_t list_count;
} tutti_value;

/* What the host offers a plugin. Valid from `open` to `close`. Every entry: [any]. */
typedef struct tutti_host {
  uint32_t struct_size;
  uint16_t abi_major;
  uint16_t abi_minor;
  void* context; /* first argument of every entry below */
  void (*log)(void* context, int32_t level, tutti_str text);
  /* Says why this thread is about to return a failure (PLG-14). */
  void (*fail)(void* context, tutti_str text);
  /* A setting that the plugin declares, or "timeouts.peer_loss" of the configuration. */
  int32_t (*config_get)(void* context, tutti_str name, tutti_value* out);
} tutti_host;

/* What a plugin is. Strings and tables live as long as the image. */
typedef struct tutti_plugin {
  uint32_t struct_size;
  uint32_t kind;
  uint16_t abi_major;
  uint16_t abi_minor;
  uint32_t reserved;
  tutti_str name;
  tutti_str version;
  tutti_str description; /* one line for `tutti plugin list` */
  uint64_t capabilities; /* TUTTI_NET_CAP_*, TUTTI_ALGO_CAP_*, ... of its kind */
  const tutti_config_key* config_keys;
  uint64_t config_key_count;
  /* Makes the plugin's instance. May fail for a reason found on this machine, and says it through host->fail. [setup]
   */
  int32_t (*open)(const tutti_host* host, void** self);
  /* [setup] */
  void (*close)(void* self);
  /* The table of the plugin's kind: tutti_network_ops, tutti_algorithm_ops, tutti_protocol_ops or tutti_tuner_ops. */
  const void* ops;
} tutti_plugin;

/* The only export. Pure and cheap: fills `out` (its struct_size says how much room there is). */
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
  uint32_t cuda_major;    /* 0: holds no device code */
  char name[32];          /* zero-terminated */
  char version[32];       /* zero-terminated */
  char architectures[64]; /* "90 100": the SM versions of its kernels, zero-terminated */
} tutti_plugin_note;

#ifdef __cplusplus
}
#endif
