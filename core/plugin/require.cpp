// SPDX-License-Identifier: Apache-2.0
// The entries that each kind's table must have.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "plugin/loader.h"
#include "tutti/plugin/algorithm.h"
#include "tutti/plugin/network.h"
#include "tutti/plugin/protocol.h"
#include "tutti/plugin/tuner.h"

namespace tutti::plugin {
namespace {

struct Entry {
  const char* name;
  size_t offset;
  uint64_t capability;  // 0: always required
};

#define TUTTI_ENTRY(table, name, capability) \
  { #name, offsetof(table, name), capability }

constexpr Entry kAlgorithm[] = {
    TUTTI_ENTRY(tutti_algorithm_ops, search, 0),     TUTTI_ENTRY(tutti_algorithm_ops, connect, 0),
    TUTTI_ENTRY(tutti_algorithm_ops, disconnect, 0), TUTTI_ENTRY(tutti_algorithm_ops, channel_count, 0),
    TUTTI_ENTRY(tutti_algorithm_ops, variant, 0),    TUTTI_ENTRY(tutti_algorithm_ops, plan, 0),
    TUTTI_ENTRY(tutti_algorithm_ops, cost, 0),
};
constexpr Entry kProtocol[] = {
    TUTTI_ENTRY(tutti_protocol_ops, properties, 0),
    TUTTI_ENTRY(tutti_protocol_ops, layout, 0),
    TUTTI_ENTRY(tutti_protocol_ops, run, 0),
};
constexpr Entry kNetwork[] = {
    TUTTI_ENTRY(tutti_network_ops, create, 0),
    TUTTI_ENTRY(tutti_network_ops, destroy, 0),
    TUTTI_ENTRY(tutti_network_ops, device_count, 0),
    TUTTI_ENTRY(tutti_network_ops, properties, 0),
    TUTTI_ENTRY(tutti_network_ops, listen, 0),
    TUTTI_ENTRY(tutti_network_ops, connect, 0),
    TUTTI_ENTRY(tutti_network_ops, accept, 0),
    TUTTI_ENTRY(tutti_network_ops, cancel, 0),
    TUTTI_ENTRY(tutti_network_ops, register_memory, 0),
    TUTTI_ENTRY(tutti_network_ops, register_dmabuf, TUTTI_NET_CAP_DMABUF),
    TUTTI_ENTRY(tutti_network_ops, deregister_memory, 0),
    TUTTI_ENTRY(tutti_network_ops, send, 0),
    TUTTI_ENTRY(tutti_network_ops, recv, 0),
    TUTTI_ENTRY(tutti_network_ops, flush, TUTTI_NET_CAP_FLUSH),
    TUTTI_ENTRY(tutti_network_ops, test, 0),
    TUTTI_ENTRY(tutti_network_ops, close_connection, 0),
    TUTTI_ENTRY(tutti_network_ops, close_listener, 0),
    TUTTI_ENTRY(tutti_network_ops, event_fd, TUTTI_NET_CAP_EVENT_FD),
    TUTTI_ENTRY(tutti_network_ops, arm, TUTTI_NET_CAP_EVENT_FD),
};
constexpr Entry kTuner[] = {
    TUTTI_ENTRY(tutti_tuner_ops, create, 0),
    TUTTI_ENTRY(tutti_tuner_ops, destroy, 0),
    TUTTI_ENTRY(tutti_tuner_ops, choose, 0),
};
#undef TUTTI_ENTRY

constexpr uint64_t kNetworkCapabilities = TUTTI_NET_CAP_GROUPED_RECV | TUTTI_NET_CAP_DEVICE_MEMORY |
                                          TUTTI_NET_CAP_DMABUF | TUTTI_NET_CAP_FLUSH | TUTTI_NET_CAP_EVENT_FD;

struct Table {
  std::span<const Entry> entries;
  size_t bytes = 0;
};

Table table_of(Kind kind) {
  switch (kind) {
    case Kind::kAlgorithm:
      return {kAlgorithm, sizeof(tutti_algorithm_ops)};
    case Kind::kProtocol:
      return {kProtocol, sizeof(tutti_protocol_ops)};
    case Kind::kNetwork:
      return {kNetwork, sizeof(tutti_network_ops)};
    case Kind::kTuner:
      return {kTuner, sizeof(tutti_tuner_ops)};
  }
  return {};
}

}  // namespace

uint32_t size_of_struct(const void* address) {
  uint32_t bytes = 0;
  std::memcpy(&bytes, address, sizeof bytes);
  return bytes;
}

std::vector<uint64_t> whole_table(Kind kind, const void* ops) {
  const size_t bytes = table_of(kind).bytes;
  std::vector<uint64_t> whole(bytes / sizeof(uint64_t));
  std::memcpy(whole.data(), ops, std::min<size_t>(bytes, size_of_struct(ops)));
  return whole;
}

std::string unknown_capabilities(Kind kind, uint64_t capabilities) {
  const uint64_t unknown = capabilities & ~(kind == Kind::kNetwork ? kNetworkCapabilities : 0);
  if (unknown == 0) return {};
  const Abi abi = abi_of(kind);
  return fmt::format("it claims the capabilities 0x{:x}, which {} ABI {}.{} does not define (PLG-8)", unknown,
                     to_string(kind), abi.major, abi.minor);
}

std::string missing_entry(Kind kind, uint64_t capabilities, const void* ops) {
  if (ops == nullptr) return "its table of operations is null";
  const uint32_t table_bytes = size_of_struct(ops);
  if (table_bytes < sizeof(uint64_t)) {
    return fmt::format("its table of operations has struct_size {} (PLG-5)", table_bytes);
  }
  for (const Entry& entry : table_of(kind).entries) {
    if (entry.capability != 0 && (capabilities & entry.capability) == 0) continue;
    const void* function = nullptr;
    if (entry.offset + sizeof function <= table_bytes) {
      std::memcpy(&function, static_cast<const char*>(ops) + entry.offset, sizeof function);
    }
    if (function != nullptr) continue;
    return entry.capability == 0
               ? fmt::format("its operation '{}' is null", entry.name)
               : fmt::format("it claims the capability 0x{:x}, but its operation '{}' is null (PLG-8)",
                             entry.capability, entry.name);
  }
  return {};
}

}  // namespace tutti::plugin
