// SPDX-License-Identifier: Apache-2.0
// The C++ class of a protocol plugin. tutti/plugin/protocol.h states the contract of each function. The executors are
// in tutti/device/.
#pragma once

#include "tutti/plugin/protocol.h"
#include "tutti/sdk/plugin.h"

namespace tutti::sdk {

/// A protocol plugin. The host calls no primitives for a device that properties() does not name. Threads: any thread
/// may call any function at any time; but one thread at a time calls run() for the same work.
class Protocol : public Plugin {
 public:
  using Kind = Protocol;
  static constexpr uint32_t kKind = TUTTI_KIND_PROTOCOL;
  static constexpr Abi kAbi = {TUTTI_PROTOCOL_ABI_MAJOR, TUTTI_PROTOCOL_ABI_MINOR};

  /// search: the links on which the protocol is valid, and its cost.
  virtual tutti_protocol_properties properties() const = 0;
  /// connect: fills the outputs of `layout` for a connection over a link of kind `link` (TUTTI_LINK_*).
  virtual Status layout(uint32_t link, tutti_slot_layout& layout) const = 0;
  /// primitives, host: moves the data of a work; see tutti_protocol_ops. This is the data path: no exception may leave
  /// it.
  virtual int32_t run(tutti_work& work) noexcept {
    (void)work;
    return TUTTI_UNSUPPORTED;
  }
  /// primitives, CUDA: loads the kernels on the GPU of the calling thread. No exception may leave it.
  virtual int32_t load() noexcept { return TUTTI_OK; }
  /// primitives, CUDA: enqueues the kernel of a launch on `stream`, a cudaStream_t of the GPU of the calling thread. No
  /// exception may leave it.
  virtual int32_t launch(const tutti_cuda_launch& launch, void* stream) noexcept {
    (void)launch, (void)stream;
    return TUTTI_UNSUPPORTED;
  }
  /// connect, CUDA: sets `ctas` to the number of CTAs of kernels for strands that the GPU of the calling thread holds
  /// at the same time. No exception may leave it.
  virtual int32_t strand_ctas(uint32_t& ctas) noexcept {
    ctas = 0;
    return TUTTI_OK;
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
        },
        [](void* self, uint32_t* ctas) -> int32_t { return static_cast<Protocol*>(self)->strand_ctas(*ctas); }};
    return &ops;
  }
};

}  // namespace tutti::sdk
