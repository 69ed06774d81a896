// SPDX-License-Identifier: Apache-2.0
// A protocol that commits one fault, named in its setting `fault`; with "none" it is right.
#include <algorithm>
#include <bit>
#include <limits>

#include "conformance/mock_fault.h"
#include "tutti/device/host/team.h"
#include "tutti/sdk/protocol.h"

namespace tutti::mock {
namespace {

constexpr uint8_t kHighBit = 0x40;  // of the last byte of a float: changes the exponent

std::string& fault() {
  static std::string name;
  return name;
}
bool has(std::string_view name) {
  return fault() == name;
}

/// An address that is rounded down to four elements.
template <class T>
T* rounded(T* address, uint64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) / bytes * bytes);
}

class Mock : public sdk::Protocol {
 public:
  static std::vector<tutti_config_key> settings() { return fault_setting(); }
  Status open(const sdk::Host& host) override {
    fault() = host.text("fault");
    return {};
  }

  tutti_protocol_properties properties() const override {
    tutti_protocol_properties out{};
    out.links = 1u << TUTTI_LINK_SHM | 1u << TUTTI_LINK_NETWORK;
    out.max_fan = has("no_fan") ? 0 : 64;
    out.devices = TUTTI_DEVICE_HOST;
    out.efficiency[TUTTI_LINK_SHM] = out.efficiency[TUTTI_LINK_NETWORK] = 1;
    if (has("infinite_latency")) out.latency_us[TUTTI_LINK_SHM] = std::numeric_limits<double>::infinity();
    if (has("unstable_properties")) out.channel_gbs[TUTTI_LINK_SHM] = ++asked_;
    return out;
  }

  Status layout(uint32_t /*link*/, tutti_slot_layout& layout) const override {
    if (has("no_reason")) return {Code::kInternal, ""};
    if (!has("odd_slots")) layout.slot_count = std::bit_ceil(std::max(layout.slot_count, 2u));
    layout.slot_bytes = (std::max<uint64_t>(layout.slot_bytes, 64) + 63) / 64 * 64;
    layout.slot_stride = layout.slot_bytes + device::Simple::kHeaderBytes;
    if (has("ragged_stride")) layout.slot_stride += 8;
    if (has("small_slots")) layout.slot_stride = 64;
    layout.chunk_slots = has("large_chunks") ? 2 * layout.slot_count : layout.slot_count / 2;
    return {};
  }

  int32_t run(tutti_work& work) noexcept override { return execute(work); }

  static int32_t execute(tutti_work& work) {
    tutti_work changed = work;
    change(changed);
    const int32_t code = has("reversed_fold") ? execute_reversed(changed) : execute_program(changed);
    work.cursor = changed.cursor;
    work.fault = changed.fault;
    if (code == TUTTI_OK) spoil(work);
    if (code == TUTTI_MISMATCH && has("wrong_peer")) work.fault.peer += 1;
    if (code == TUTTI_AGAIN && has("sleeps")) {
      const timespec little{0, 100'000};
      nanosleep(&little, nullptr);
    }
    if (code == TUTTI_AGAIN && has("gives_up")) return TUTTI_TIMEOUT;
    return code;
  }

 private:
  static int32_t execute_program(tutti_work& work) {
    device::HostTeam team(work);
    return device::Executor<device::HostTeam, device::Simple>(team, work).run();
  }

  static void change(tutti_work& work) {
    static uint32_t never = 0;
    if (has("ignores_abort")) work.abort = &never;
    if (has("ignores_digest")) work.check = 0;
    if (has("product_of_int8") && work.data_type == TUTTI_INT8 && work.reduce_op == TUTTI_PROD) {
      work.reduce_op = TUTTI_SUM;
    }
    if (has("forgets_average")) work.divisor = 0;
    if (has("forgets_scalar") && work.reduce_op == TUTTI_PREMUL_SUM) work.reduce_op = TUTTI_SUM;
    if (has("odd_end") && work.end % 2 == 1) --work.end;
    if (has("rounds_address")) work.output = rounded(static_cast<uint8_t*>(work.output), 4 * work.element_bytes);
    if (has("rounds_input")) work.input = rounded(static_cast<const uint8_t*>(work.input), 4 * work.element_bytes);
  }

  /// Spoils the result of a right execution.
  static void spoil(tutti_work& work) {
    auto* const output = static_cast<uint8_t*>(work.output);
    const uint64_t bytes = work.count * work.element_bytes * work.program->output_blocks;
    if (has("writes_beyond") && bytes > 0) output[bytes] = 0;
    if (has("changes_input") && work.input != work.output && work.count > 0) {
      *static_cast<uint8_t*>(const_cast<void*>(work.input)) ^= 1;
    }
    if (has("large_calls") && bytes > 200'000) output[bytes - 1] ^= kHighBit;
    if (has("not_in_place") && work.input == work.output && bytes > 0) output[bytes - 1] ^= kHighBit;
    if (has("spoils_direct") && work.direct_minimum > 0 && bytes > 0) output[bytes - 1] ^= kHighBit;
  }

  /// Folds the messages in descending order of ranks: the program has them in ascending order.
  static int32_t execute_reversed(tutti_work& work) {
    const tutti_program& program = *work.program;
    std::vector<tutti_connection*> connections(work.connections, work.connections + program.peer_count);
    for (uint32_t i = 0; i < program.step_count; ++i) {
      const tutti_program_step& step = program.steps[i];
      if (step.recv_count < 2 || (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0) continue;
      std::reverse(connections.begin() + step.recv_begin, connections.begin() + step.recv_begin + step.recv_count);
    }
    work.connections = connections.data();
    return execute_program(work);
  }

  mutable double asked_ = 0;
};

/// The table of the SDK, with an entry that throws where the SDK's would end the process.
const tutti_protocol_ops* table() {
  static tutti_protocol_ops ops = *sdk::Protocol::table();
  ops.run = [](void* /*self*/, tutti_work* work) -> int32_t {
    misbehave(fault());
    return Mock::execute(*work);
  };
  return &ops;
}

}  // namespace
}  // namespace tutti::mock

extern "C" __attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out) {
  const int32_t code = tutti::sdk::describe<tutti::mock::Mock>(out, "mock", "1.0", "a protocol with faults");
  if (code == TUTTI_OK) out->ops = tutti::mock::table();
  return code;
}
