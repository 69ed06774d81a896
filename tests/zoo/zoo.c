/* Network plugins with one defect each, chosen by ZOO_DEFECT: defects that the loader must refuse, and the way of the
 * refusal. The list is in ../unit/plugin.cmake. */
#include <string.h>

/* Each header of the ABI is C11 (PLG-6). */
#include "tutti/plugin/abi.h"
#include "tutti/plugin/algorithm.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/network.h"
#include "tutti/plugin/plan.h"
#include "tutti/plugin/protocol.h"
#include "tutti/plugin/topology.h"
#include "tutti/plugin/tuner.h"
#include "tutti/plugin/types.h"

#define ZOO_NONE 0
#define ZOO_TINY_TABLE 1
#define ZOO_NULL_OPERATION 2
#define ZOO_NULL_CLAIMED 3
#define ZOO_ENTRY_FAILS 4
#define ZOO_OPEN_FAILS 5
#define ZOO_OPEN_SILENT 6
#define ZOO_OTHER_NAME 7
#define ZOO_NO_ENTRY 8
#define ZOO_NO_OPS 9
#define ZOO_OTHER_ABI 10
#define ZOO_NO_SETTINGS 11
#define ZOO_UNRESOLVED 12
#define ZOO_EXPORTS_MORE 13
#define ZOO_NULL_SELF 14
#define ZOO_SHORT_OPS 15
#define ZOO_SHORT_CLAIMED 16
#define ZOO_LONG_SETTINGS 17
#define ZOO_TINY_SETTING 18
#define ZOO_FUTURE_CLAIM 19

static int32_t create(void* self, uint64_t communicator, void** context) {
  (void)self, (void)communicator, (void)context;
  return TUTTI_UNSUPPORTED;
}
static void destroy(void* context) {
  (void)context;
}
static int32_t device_count(void* context, uint32_t* count) {
  return (void)context, *count = 0, TUTTI_OK;
}
static int32_t properties(void* c, uint32_t d, tutti_net_properties* p) {
  return (void)c, (void)d, (void)p, TUTTI_NOT_FOUND;
}
static int32_t listen(void* c, uint32_t d, tutti_net_handle* h, void** l) {
  return (void)c, (void)d, (void)h, (void)l, TUTTI_UNSUPPORTED;
}
static int32_t connect(void* c, uint32_t d, const tutti_net_handle* h, void** s, void** o) {
  return (void)c, (void)d, (void)h, (void)s, (void)o, TUTTI_UNSUPPORTED;
}
static int32_t accept(void* l, void** s, void** c) {
  return (void)l, (void)s, (void)c, TUTTI_UNSUPPORTED;
}
static void ignore(void* anything) {
  (void)anything;
}
static int32_t register_memory(void* c, void* a, uint64_t b, uint32_t m, void** r) {
  return (void)c, (void)a, (void)b, (void)m, (void)r, TUTTI_UNSUPPORTED;
}
static int32_t deregister_memory(void* c, void* r) {
  return (void)c, (void)r, TUTTI_UNSUPPORTED;
}
static int32_t send(void* c, const void* a, uint64_t b, uint32_t t, void* m, void** r) {
  return (void)c, (void)a, (void)b, (void)t, (void)m, (void)r, TUTTI_UNSUPPORTED;
}
static int32_t recv(void* c, uint32_t n, void* const* a, const uint64_t* b, const uint32_t* t, void* const* m,
                    void** r) {
  return (void)c, (void)n, (void)a, (void)b, (void)t, (void)m, (void)r, TUTTI_UNSUPPORTED;
}
static int32_t test(void* r, int32_t* d, uint64_t* b) {
  return (void)r, (void)d, (void)b, TUTTI_UNSUPPORTED;
}

static int32_t event_fd(void* c, int32_t* fd) {
  return (void)c, (void)fd, TUTTI_UNSUPPORTED;
}

#define IS_SHORT (ZOO_DEFECT == ZOO_SHORT_OPS || ZOO_DEFECT == ZOO_SHORT_CLAIMED)

/* The end of a short table is not part of it: its last two entries are memory that the host must not read. */
static const tutti_network_ops ops = {
    IS_SHORT ? offsetof(tutti_network_ops, event_fd) : sizeof(tutti_network_ops),
    0,
    create,
    destroy,
    device_count,
    properties,
    listen,
    connect,
    accept,
    ignore,
    register_memory,
    0,
    deregister_memory,
    ZOO_DEFECT == ZOO_NULL_OPERATION ? 0 : send,
    recv,
    0,
    test,
    ignore,
    ignore,
    IS_SHORT ? event_fd : 0,
    0,
};

/* Settings of a later version, which are longer than those of this host. */
static const struct {
  tutti_config_key key;
  uint64_t later;
} settings[] = {
    {{ZOO_DEFECT == ZOO_TINY_SETTING ? 16 : sizeof settings[0],
      TUTTI_CONFIG_INTEGER,
      {"first", 5},
      {"1", 1},
      {"The first.", 10},
      1,
      0},
     UINT64_MAX},
    {{sizeof settings[0], TUTTI_CONFIG_TEXT, {"second", 6}, {"two", 3}, {"The second.", 11}, 1, 0}, UINT64_MAX}};

#if ZOO_DEFECT == ZOO_EXPORTS_MORE
__attribute__((visibility("default"))) int tutti_zoo_leak = 1;
#endif
extern int32_t tutti_zoo_nowhere(void);

static int32_t open_plugin(const tutti_host* host, void** self) {
  static const char why[] = "the flux capacitor is cold";
  if (ZOO_DEFECT == ZOO_OPEN_FAILS) {
    const tutti_str text = {why, sizeof why - 1};
    host->fail(host->context, text);
    return TUTTI_UNSUPPORTED;
  }
#if ZOO_DEFECT == ZOO_UNRESOLVED
  if (tutti_zoo_nowhere() != TUTTI_OK) return TUTTI_INTERNAL;
#endif
  *self = ZOO_DEFECT == ZOO_NULL_SELF ? 0 : (void*)&ops;
  return ZOO_DEFECT == ZOO_OPEN_SILENT ? TUTTI_SYSTEM : TUTTI_OK;
}

#if ZOO_DEFECT == ZOO_NO_ENTRY
#define tutti_plugin_entry_v1 zoo_unknown_entry
__attribute__((used)) static int32_t zoo_unknown_entry(tutti_plugin* out);
#endif

int32_t tutti_plugin_entry_v1(tutti_plugin* out) {
  const char* name = ZOO_DEFECT == ZOO_OTHER_NAME ? "impostor" : ZOO_NAME;
  if (ZOO_DEFECT == ZOO_ENTRY_FAILS) return TUTTI_INTERNAL;
  memset(out, 0, sizeof *out);
  out->struct_size = ZOO_DEFECT == ZOO_TINY_TABLE ? 8 : sizeof *out;
  out->kind = TUTTI_KIND_NETWORK;
  out->abi_major = TUTTI_NETWORK_ABI_MAJOR;
  out->abi_minor = ZOO_DEFECT == ZOO_OTHER_ABI ? 77 : TUTTI_NETWORK_ABI_MINOR;
  out->name.data = name;
  out->name.size = strlen(name);
  out->version.data = "1.0";
  out->version.size = 3;
  out->capabilities = ZOO_DEFECT == ZOO_NULL_CLAIMED    ? TUTTI_NET_CAP_FLUSH
                      : ZOO_DEFECT == ZOO_SHORT_CLAIMED ? TUTTI_NET_CAP_EVENT_FD
                      : ZOO_DEFECT == ZOO_FUTURE_CLAIM  ? (uint64_t)1 << 40
                                                        : 0;
  out->config_key_count = ZOO_DEFECT == ZOO_NO_SETTINGS ? 3 : 0;
  if (ZOO_DEFECT == ZOO_LONG_SETTINGS || ZOO_DEFECT == ZOO_TINY_SETTING) {
    out->config_keys = &settings[0].key;
    out->config_key_count = 2;
  }
  out->open = open_plugin;
  out->close = ignore;
  out->ops = ZOO_DEFECT == ZOO_NO_OPS ? 0 : &ops;
  return TUTTI_OK;
}
