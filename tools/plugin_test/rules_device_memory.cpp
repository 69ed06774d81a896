// SPDX-License-Identifier: Apache-2.0
// The rule about messages between memory of GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tools/plugin_test/gpu.h"
#include "tools/plugin_test/side.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr uint64_t kGpuBytes = 16 << 20;
constexpr uint8_t kUntouched = 0x5a;

/// Skips the rule if the GPU fails: that is not a fault of the plugin.
void require(Side& side, const Status& status) {
  if (!status.ok()) side.skip(status.to_string());
}

void flush(Side& side, void* connection, void* address, uint64_t bytes, void* region) {
  void* request = nullptr;
  side.call(Entry::kFlush, [&] { return side.ops().flush(connection, 1, &address, &bytes, &region, &request); });
  if (request != nullptr) side.finish(request, "end of a flush");
}

/// Sends `bytes` from memory of the first side's GPU to memory of the second side's GPU, and checks them there.
void send_between_gpus(Side& side, Gpu& gpu, void* connection, void* region, uint64_t bytes, uint64_t seed) {
  std::vector<uint8_t> memory(bytes + 1, kUntouched);
  const std::span<uint8_t> message(memory.data(), bytes);
  if (side.is_first()) fill(message, seed);
  require(side, gpu.upload(std::as_bytes(std::span(memory)), 0));
  void* address = gpu.memory();
  const std::string name = fmt::format("message of {} bytes between GPUs", bytes);
  if (side.is_first()) {
    side.finish(side.send(connection, address, bytes, region), name);
  } else {
    const uint64_t got = side.finish(side.recv(connection, address, bytes, region), name);
    if (got != bytes) side.violate(fmt::format("{}: test reports {} bytes", name, got));
    if ((side.capabilities() & TUTTI_NET_CAP_FLUSH) != 0) flush(side, connection, address, bytes, region);
    require(side, gpu.download(std::as_writable_bytes(std::span(memory)), 0));
    const std::string text = difference(message, seed);
    if (!text.empty()) side.violate(fmt::format("{}: {}", name, text));
    if (memory.back() != kUntouched) side.violate(name + ": the byte behind the buffer is written");
  }
  side.meet();
}

/// Registers the GPU's memory as the host does: by a dmabuf if the device takes dmabufs, else by its address.
void* register_gpu(Side& side, Gpu& gpu, void* connection) {
  if ((side.properties().memory & TUTTI_MEMORY_DMABUF) == 0) {
    return side.register_memory(connection, gpu.memory(), gpu.size(), TUTTI_MEMORY_CUDA);
  }
  const auto dmabuf = gpu.dmabuf();
  require(side, dmabuf.status());
  void* region = nullptr;
  side.call(Entry::kRegister, [&] {
    return side.ops().register_dmabuf(connection, gpu.memory(), gpu.size(), dmabuf->offset, dmabuf->descriptor,
                                      &region);
  });
  return region;
}

void test_device_memory(Side& side) {
  if ((side.properties().memory & (TUTTI_MEMORY_CUDA | TUTTI_MEMORY_DMABUF)) == 0) {
    side.skip("the device registers no memory of GPUs");
  }
  if (gpu_count() == 0) side.skip("there is no GPU, or this build has no CUDA");
  auto gpu = Gpu::open(side.is_first() ? 0 : 1, kGpuBytes);
  require(side, gpu.status());
  void* const connection = side.link(0);
  void* const region = register_gpu(side, *gpu, connection);
  uint64_t seed = 1;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{8}, uint64_t{4095}, uint64_t{65536}, kGpuBytes / 2}) {
    send_between_gpus(side, *gpu, connection, region, std::min(bytes, side.properties().max_message_bytes), ++seed);
  }
  side.deregister_memory(connection, region);
}

constexpr std::array kRules = {rule(38, test_device_memory, 60)};

}  // namespace

std::span<const Rule> device_memory_rules() {
  return kRules;
}

}  // namespace tutti::tools::plugin_test
