/* SPDX-License-Identifier: Apache-2.0
 * A driver's management library with no driver: TUTTI_FAKE_NVML names the machine that it describes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
enum { kOk = 0, kInvalid = 2, kUnsupported = 3, kNoDriver = 9, kRemoteGpu = 0, kRemoteNpu = 1, kRemoteSwitch = 2 };

typedef struct {
  const char* bus;
  int sm;
  unsigned device;
  const char* links; /* one character each: x down, S T switches, c CPU; v, w and h have no address and are a switch or
                        something else; u a further GPU that is not visible, 0-9 a GPU of this machine */
  unsigned c2c;      /* links, the last of them down */
} FakeGpu;

typedef struct {
  const char* name;
  int types_known;
  FakeGpu gpus[4];
} FakeMachine;

static const FakeMachine machines[] = {
    {"switch",
     1,
     {{"00000000:03:00.0", 90, 0x233010de, "STSTSTSTSTSTSTSTST", 0},
      {"00000000:83:00.0", 90, 0x233010de, "SSTTSTSTSTSTSTxxST", 0}}},
    {"mesh",
     1,
     {{"00000000:03:00.0", 70, 0x1db110de, "112x2u", 0},
      {"00000000:83:00.0", 70, 0x1db110de, "00h2", 0},
      {"00000001:0A:00.0", 70, 0x1db110de, "001", 0}}},
    {"virtual", 0, {{"00000000:03:00.0", 90, 0x233510de, "vvvvvvvvvwwwwwwwww", 0}}},
    {"grace", 1, {{"00000000:03:00.0", 90, 0x234210de, "cc", 10}}},
    {"empty", 1, {{0}}},
};

static const FakeMachine* machine(void) {
  const char* wanted = getenv("TUTTI_FAKE_NVML");
  for (size_t i = 0; wanted != NULL && i < sizeof machines / sizeof *machines; ++i) {
    if (strcmp(machines[i].name, wanted) == 0) return &machines[i];
  }
  return NULL;
}

typedef struct {
  char bus_legacy[16];
  unsigned domain, bus, device, device_and_vendor, subsystem;
  char bus_id[32];
} PciInfo;

typedef struct {
  unsigned field, scope;
  long long timestamp, latency;
  int type, result;
  union {
    double as_double;
    unsigned as_unsigned;
  } value;
} FieldValue;

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned* count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, const FakeGpu** gpu);
EXPORT int nvmlDeviceGetPciInfo_v3(const FakeGpu* gpu, PciInfo* info);
EXPORT int nvmlDeviceGetCudaComputeCapability(const FakeGpu* gpu, int* major, int* minor);
EXPORT int nvmlDeviceGetNvLinkState(const FakeGpu* gpu, unsigned link, int* active);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(const FakeGpu* gpu, unsigned link, PciInfo* info);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(const FakeGpu* gpu, unsigned link, int* type);
EXPORT int nvmlDeviceGetFieldValues(const FakeGpu* gpu, int count, FieldValue* values);

int nvmlInit_v2(void) {
  return machine() == NULL ? kNoDriver : kOk;
}
int nvmlShutdown(void) {
  return kOk;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  for (*count = 0; *count < 4 && machine()->gpus[*count].bus != NULL;) ++*count;
  return kOk;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, const FakeGpu** gpu) {
  *gpu = &machine()->gpus[index];
  return kOk;
}

int nvmlDeviceGetPciInfo_v3(const FakeGpu* gpu, PciInfo* info) {
  snprintf(info->bus_id, sizeof info->bus_id, "%s", gpu->bus);
  info->device_and_vendor = gpu->device;
  info->subsystem = 0x16c110de;
  return kOk;
}

int nvmlDeviceGetCudaComputeCapability(const FakeGpu* gpu, int* major, int* minor) {
  *major = gpu->sm / 10;
  *minor = gpu->sm % 10;
  return kOk;
}

int nvmlDeviceGetNvLinkState(const FakeGpu* gpu, unsigned link, int* active) {
  if (link >= strlen(gpu->links)) return kInvalid;
  *active = gpu->links[link] != 'x';
  return kOk;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const FakeGpu* gpu, unsigned link, PciInfo* info) {
  const char at = gpu->links[link];
  if (at == 'v' || at == 'h') return kUnsupported;
  const char* bus = at == 'S'   ? "00000000:C5:00.0"
                    : at == 'T' ? "00000000:C6:00.0"
                    : at == 'c' ? "00000000:00:00.0"
                    : at == 'w' ? "FFFFFFFF:FF:FF.0"
                    : at == 'u' ? "00000000:99:00.0"
                                : machine()->gpus[at - '0'].bus;
  snprintf(info->bus_id, sizeof info->bus_id, "%s", bus);
  return kOk;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const FakeGpu* gpu, unsigned link, int* type) {
  const char at = gpu->links[link];
  if (!machine()->types_known) return kUnsupported;
  *type = at == 'S' || at == 'T' || at == 'v' ? kRemoteSwitch : at == 'c' ? kRemoteNpu : kRemoteGpu;
  return kOk;
}

int nvmlDeviceGetFieldValues(const FakeGpu* gpu, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    FieldValue* value = &values[i];
    value->result = gpu->c2c == 0 ? kUnsupported : kOk;
    value->value.as_unsigned = value->field == 170   ? gpu->c2c
                               : value->field == 171 ? value->scope + 1 < gpu->c2c
                               : value->field == 172 ? 44712
                                                     : 0;
  }
  return kOk;
}
