// SPDX-License-Identifier: Apache-2.0
// The C++ face of a protocol plugin; the contract is in tutti/plugin/protocol.h. The executors are in tutti/device/.
#pragma once

#include "tutti/plugin/protocol.h"
#include "tutti/sdk/plugin.h"

namespace tutti::sdk {

class Protocol : public Plugin {
 public:
  using Kind = Protocol;
  static constexpr uint32_t kKind = TUTTI_KIND_PROTOCOL;

  /// search: where it is valid and what it costs.
  virtual tutti_protocol_properties properties() const = 0;
  /// connect: fills the outputs of `layout` for a connection over `link`.
  virtual Status layout(uint32_t link, tutti_slot_layout& layout) const = 0;
  /// primitives: see tutti_protocol_ops. The data path: no exception may leave it. Those of a device that properties()
  /// does not name are never called.
  virtual int32_t run(tutti_work& work) noexcept {
    (void)work;
    return TUTTI_UNSUPPORTED;
  }
  virtual int32_t load() noexcept { return TUTTI_OK; }
  virtual int32_t launch(const tutti_cuda_launch& launch, void* stream) noexcept {
    (void)launch, (void)stream;
    return TUTTI_UNSUPPORTED;
  }

  static const tutti_protocol_ops* table() {
    static const tutti_protocol_ops ops = {
        sizeof(tutti_protocol_ops),
        0,
        [](void* self, tutti_protocol_properties* out) -> int32_t {
          const auto& protocol = *static_cast<Protocol*>(self);
          return guarded(protocol.host(), [&]() -> Status {
            *out = protocol.properties();
            out->struct_size = sizeof *out;
            return {};
          });
        },
        [](void* self, uint32_t link, tutti_slot_layout* layout) -> int32_t {
          const auto& protocol = *static_cast<Protocol*>(self);
          return guarded(protocol.host(), [&] { return protocol.layout(link, *layout); });
        },
        [](void* self, tutti_work* work) -> int32_t { return static_cast<Protocol*>(self)->run(*work); },
        [](void* self, const tutti_cuda_launch* launch, void* stream) -> int32_t {
          auto& protocol = *static_cast<Protocol*>(self);
          return launch == nullptr ? protocol.load() : protocol.launch(*launch, stream);
        }};
    return &ops;
  }
};

}  // namespace tutti::sdk
