// SPDX-License-Identifier: Apache-2.0
// Rules of protocols about properties, layouts, waits and failures.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tools/plugin_test/calls.h"
#include "tools/plugin_test/host_ranks.h"
#include "tools/plugin_test/rule.h"

namespace tutti::tools::plugin_test {

tutti_protocol_properties properties_of(Trial& trial) {
  tutti_protocol_properties properties{};
  properties.struct_size = sizeof properties;
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code =
      trial.call("properties", [&] { return trial.ops<tutti_protocol_ops>().properties(trial.self(), &properties); });
  if (code == TUTTI_OK) return properties;
  trial.violate_failure("PRO-5", "properties", Status(static_cast<Code>(code), plugin::take_failure_text()));
}

tutti_slot_layout layout_of(Trial& trial, uint32_t link, uint32_t slot_count, uint64_t slot_bytes) {
  tutti_slot_layout layout{};
  layout.struct_size = sizeof layout;
  layout.slot_count = slot_count;
  layout.slot_bytes = slot_bytes;
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code =
      trial.call("layout", [&] { return trial.ops<tutti_protocol_ops>().layout(trial.self(), link, &layout); });
  if (code == TUTTI_OK) return layout;
  trial.violate_failure("PRO-6", fmt::format("layout over {}", link_name(link)),
                        Status(static_cast<Code>(code), plugin::take_failure_text()));
}

std::string_view link_name(uint32_t link) {
  constexpr std::array<std::string_view, TUTTI_LINK_COUNT> kNames = {"shared memory", "a network", "GPUs"};
  return kNames[link];
}

std::vector<uint32_t> host_links(Trial& trial) {
  const tutti_protocol_properties properties = properties_of(trial);
  if ((properties.devices & TUTTI_DEVICE_HOST) == 0) trial.skip("the protocol does not run on the host");
  std::vector<uint32_t> links;
  for (const uint32_t link : {TUTTI_LINK_SHM, TUTTI_LINK_NETWORK}) {
    if ((properties.links >> link & 1) != 0) links.push_back(link);
  }
  if (links.empty()) trial.skip("the protocol is valid on no link of the host");
  return links;
}

namespace {

void test_properties(Trial& trial) {
  const tutti_protocol_properties properties = properties_of(trial);
  if (properties.links == 0 || properties.links >> TUTTI_LINK_COUNT != 0) {
    trial.violate(fmt::format("links is {:#x}", properties.links));
  }
  if (properties.devices > (TUTTI_DEVICE_HOST | TUTTI_DEVICE_CUDA)) {
    trial.violate(fmt::format("devices is {:#x}", properties.devices));
  }
  if (properties.max_fan == 0) trial.violate("max_fan is 0");
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    for (const double value :
         {properties.latency_us[link], properties.efficiency[link], properties.channel_gbs[link]}) {
      if (!std::isfinite(value) || value < 0) {
        trial.violate(fmt::format("latency, efficiency or bandwidth over {} is {}", link_name(link), value));
      }
    }
    if ((properties.links >> link & 1) != 0 && properties.efficiency[link] <= 0) {
      trial.violate(fmt::format("the protocol is valid over {}, but its efficiency there is 0", link_name(link)));
    }
  }
  const tutti_protocol_properties again = properties_of(trial);
  if (std::memcmp(&properties, &again, sizeof again) != 0) trial.violate("the second call gives other properties");
}

std::string problem_of(const tutti_slot_layout& layout, uint32_t link) {
  const uint32_t message = std::max(1u, layout.message_slots);
  if (!std::has_single_bit(layout.slot_count)) {
    return fmt::format("slot_count is {}, which is no power of two", layout.slot_count);
  }
  if (layout.slot_bytes == 0) return "slot_bytes is 0";
  if (layout.slot_stride == 0 || layout.slot_stride % 64 != 0) {
    return fmt::format("slot_stride is {}, which is no multiple of 64", layout.slot_stride);
  }
  if (layout.slot_stride * message < layout.slot_bytes) {
    return fmt::format("{} slots of {} bytes do not hold a message of {}", message, layout.slot_stride,
                       layout.slot_bytes);
  }
  if (message > 1 && link != TUTTI_LINK_SHM) return "message_slots is for shared memory";
  if (layout.slot_count < 2 * message) {
    return fmt::format("slot_count is {}, less than two messages of {} slots", layout.slot_count, message);
  }
  if (layout.chunk_slots == 0 || layout.chunk_slots * message > layout.slot_count) {
    return fmt::format("chunk_slots is {}, but {} messages fit", layout.chunk_slots, layout.slot_count / message);
  }
  return {};
}

void test_layout(Trial& trial) {
  const tutti_protocol_properties properties = properties_of(trial);
  for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
    if ((properties.links >> link & 1) == 0) continue;
    const bool on_gpus = link == TUTTI_LINK_P2P;
    if (on_gpus && (properties.devices & TUTTI_DEVICE_CUDA) == 0) continue;
    for (const uint32_t count : {0u, 2u, 3u, 8u, 31u, 64u}) {
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{64}, uint64_t{1000}, uint64_t{4096}, uint64_t{128} << 10,
                                   (uint64_t{1} << 20) + 1, uint64_t{1} << 30}) {
        if (!on_gpus && (count == 0 || bytes == 0)) continue;  // settings of the host have these limits
        const tutti_slot_layout layout = layout_of(trial, link, count, bytes);
        const tutti_slot_layout again = layout_of(trial, link, count, bytes);
        std::string problem = problem_of(layout, link);
        if (std::memcmp(&layout, &again, sizeof again) != 0) problem = "the second call gives another layout";
        if (problem.empty()) continue;
        trial.violate(
            fmt::format("layout over {} for {} slots of {} bytes: {}", link_name(link), count, bytes, problem));
      }
    }
  }
}

HostCall exchange(size_t count, uint64_t seed) {
  HostCall call;
  call.problem.rank_count = 2;
  call.problem.count = count;
  call.problem.seed = seed;
  call.schedule = Schedule::kOneShot;
  return call;
}

long voluntary_waits() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

void test_waits(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, 2);
    const auto both = ranks.prepare(exchange(1000, trial.request().seed));
    constexpr int kCalls = 200;
    const long before = voluntary_waits();
    for (int i = 0; i < kCalls; ++i) {
      const int32_t code = ranks.step(*both[0]);
      if (code == TUTTI_AGAIN) continue;
      trial.violate(fmt::format("over {}, run without a peer returns '{}', not TUTTI_AGAIN", link_name(link),
                                to_string(static_cast<Code>(code))));
    }
    if (const long waits = voluntary_waits() - before; waits > kCalls / 4) {
      trial.violate(
          fmt::format("over {}, {} calls of run without a peer slept {} times", link_name(link), kCalls, waits));
    }
  }
}

void test_abort(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, 2);
    const auto both = ranks.prepare(exchange(1000, trial.request().seed));
    ranks.step(*both[0]);
    both[0]->abort = 1;
    const int32_t code = ranks.step(*both[0]);
    if (code == TUTTI_ABORTED) continue;
    trial.violate(fmt::format("over {}, run returns '{}' after the abort, not TUTTI_ABORTED", link_name(link),
                              to_string(static_cast<Code>(code))));
  }
}

void test_mismatch(Trial& trial) {
  for (const uint32_t link : host_links(trial)) {
    HostRanks ranks(trial, link, 2);
    const auto both = ranks.prepare(exchange(100, trial.request().seed));
    both[1]->work.signature.words[0] += 1;
    bool found = false;
    for (int turn = 0; turn < 100 && !found; ++turn) {
      for (uint32_t index = 0; index < 2 && !found; ++index) {
        const HostRanks::Rank& other = *both[1 - index];
        const tutti_work& work = both[index]->work;
        const int32_t code = ranks.step(*both[index]);
        ranks.carry();
        if (code == TUTTI_OK || code == TUTTI_AGAIN) continue;
        found = code == TUTTI_MISMATCH && work.fault.peer == 1 - index &&
                std::memcmp(&work.fault.theirs, &other.work.signature, sizeof work.fault.theirs) == 0;
        if (found) continue;
        trial.violate(
            fmt::format("over {}, ranks make different calls: run of rank {} returns '{}', peer {}, digest "
                        "{:x}; TUTTI_MISMATCH, peer {} and digest {:x} are right",
                        link_name(link), index, to_string(static_cast<Code>(code)), work.fault.peer,
                        work.fault.theirs.words[0], 1 - index, other.work.signature.words[0]));
      }
    }
    if (!found)
      trial.violate(fmt::format("over {}, ranks make different calls, and run does not notice", link_name(link)));
  }
}

constexpr TrialRule kRules[] = {
    {{"PRO-1", "returns", "Every entry returns. An entry that has not returned for 10 s violates this rule."}},
    {{"PRO-2", "throws", "No exception leaves an entry (PLG-4)."}},
    {{"PRO-3", "reasons", "properties and layout give the reason of a failure to host->fail (PLG-14)."}},
    {{"PRO-4", "crashes", "No entry ends the process."}},
    {{.number = "PRO-5",
      .name = "properties",
      .sentence = "Properties are in range: links, devices, a fan, finite costs. They stay the same."},
     test_properties},
    {{.number = "PRO-6",
      .name = "layout",
      .sentence = "A layout has a power of two of slots, which hold two messages, at multiples of 64 bytes."},
     test_layout},
};

constexpr TrialRule kLaterRules[] = {
    {{.number = "PRO-14",
      .name = "waits",
      .sentence = "While a peer has sent nothing, run returns TUTTI_AGAIN and does not sleep."},
     test_waits},
    {{.number = "PRO-15", .name = "abort", .sentence = "After an abort, run returns TUTTI_ABORTED."}, test_abort},
    {{.number = "PRO-16",
      .name = "mismatch",
      .sentence = "If ranks make different calls, run returns TUTTI_MISMATCH and names the peer and its digest."},
     test_mismatch},
};

}  // namespace

std::span<const TrialRule> protocol_rules() {
  return kRules;
}
std::span<const TrialRule> wait_rules() {
  return kLaterRules;
}

}  // namespace tutti::tools::plugin_test
