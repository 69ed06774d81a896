// SPDX-License-Identifier: Apache-2.0
// The obligations of a network plugin (tutti/plugin/network.h), each written once: a number, a name and a sentence.
// `tutti plugin test` tests the rules, and `check.plugins` holds the calls of a job to rules that a job can see.
// docs/plugin-guide.md holds the same table.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/plugin/network.h"

namespace tutti::plugin {

struct NetworkRule {
  std::string_view number;  ///< "NET-7"; texts and reports name it
  std::string_view name;    ///< "capabilities"
  std::string_view sentence;
};

/// In the order of the numbers, from NET-1 on.
inline constexpr std::array kNetworkRules = {
    NetworkRule{"NET-1", "returns",
                "Every entry returns: [progress] entries, connect and accept within 2 s, all others within 10 s."},
    NetworkRule{"NET-2", "throws", "No exception leaves an entry (PLG-4)."},
    NetworkRule{"NET-3", "reasons", "An entry that fails gives its reason to host->fail (PLG-14)."},
    NetworkRule{"NET-4", "crashes", "No entry ends the process."},
    NetworkRule{"NET-5", "devices",
                "device_count and properties give the same answers at each call and in each context."},
    NetworkRule{
        "NET-6", "properties",
        "Properties are in range: struct_size, a name, memory of the host, messages of 64 KiB, finite speed and "
        "latency."},
    NetworkRule{"NET-7", "capabilities",
                "Capabilities and devices agree, and a claimed event descriptor is open and stays the same."},
    NetworkRule{"NET-8", "connect", "connect and accept return TUTTI_AGAIN until the connection stands, within 5 s."},
    NetworkRule{"NET-9", "connect-blocks", "connect and accept do not block: they sleep for less than 50 ms."},
    NetworkRule{"NET-10", "connections", "Many connections stand at the same time, and each carries its own messages."},
    NetworkRule{"NET-11", "abort", "cancel gives up a connect and leaves no descriptor. Later connections work."},
    NetworkRule{"NET-12", "strangers",
                "Strangers that send garbage to a listener cause no failure of accept, and delay no connection by 2 "
                "s."},
    NetworkRule{"NET-13", "order", "Messages of one tag match receives in the order posted, and none is lost."},
    NetworkRule{"NET-14", "lengths", "test reports the bytes of each message, and nothing behind them is written."},
    NetworkRule{"NET-15", "small", "Messages of 0 bytes and of 1 byte arrive."},
    NetworkRule{"NET-16", "large",
                "Messages up to max_message_bytes arrive whole; the kit sends 64 MiB, or 1 GiB with --long."},
    NetworkRule{"NET-17", "unaligned", "Buffers may begin at any address and have any length."},
    NetworkRule{"NET-18", "outstanding", "64 requests may be outstanding on a connection, and be tested in any order."},
    NetworkRule{"NET-19", "complete",
                "A receive is complete when it holds its whole message; a send, when its buffer is free."},
    NetworkRule{"NET-20", "once", "Each message is delivered once."},
    NetworkRule{"NET-21", "tags",
                "A message matches a receive of its tag, although messages of other tags come first."},
    NetworkRule{"NET-22", "groups", "A grouped receive takes a message of each of its tags, and reports each length."},
    NetworkRule{"NET-23", "too-long",
                "A message longer than its buffer fails its receive, and nothing behind the buffer is written."},
    NetworkRule{"NET-24", "early", "A message without a receive waits for its receive."},
    NetworkRule{"NET-25", "registration",
                "Regions of registered memory may overlap, come and go. A message may begin anywhere in its region."},
    NetworkRule{"NET-26", "message-leak", "A message leaves no memory behind: less than 32 bytes each."},
    NetworkRule{"NET-27", "connection-leak",
                "A closed connection leaves no descriptor, and less than 16 KiB of memory."},
    NetworkRule{"NET-28", "end-after-data",
                "Messages that were sent before the peer's close arrive, and then the end."},
    NetworkRule{"NET-29", "peer-closes",
                "If the peer closes, outstanding requests and later posts end with TUTTI_REMOTE."},
    NetworkRule{"NET-30", "close-receives", "After close_connection, the plugin writes into no buffer of a receive."},
    NetworkRule{"NET-31", "close-sends", "After close_connection, the plugin reads no buffer of a send."},
    NetworkRule{"NET-32", "slow-peer", "A peer that makes no call for 300 ms loses no message."},
    NetworkRule{"NET-33", "stopped-peer",
                "A stop of the peer's process that is shorter than timeouts.peer_loss ends no connection."},
    NetworkRule{"NET-34", "killed-peer", "If the peer's process dies, requests and later posts end with TUTTI_REMOTE."},
    NetworkRule{"NET-35", "budget",
                "A [progress] entry does not sleep for 20 ms; in the median, it takes 100 µs at most, and 1 µs for "
                "each KB of a message."},
    NetworkRule{"NET-36", "arm", "arm loses no wake-up: the descriptor becomes readable when a message comes."},
    NetworkRule{"NET-37", "arm-sleeps", "arm returns TUTTI_OK while nothing comes."},
    NetworkRule{"NET-38", "device-memory",
                "If a device registers memory of GPUs, messages between such memory arrive whole, after the flush."},
    NetworkRule{"NET-39", "context-leak",
                "A context that was destroyed after its listener leaves no descriptor, and less than 16 KiB of "
                "memory."},
};

/// The rule "NET-<number>", with 1 <= number <= kNetworkRules.size().
constexpr const NetworkRule& network_rule(uint32_t number) {
  return kNetworkRules[number - 1];
}

/// Why the struct_size of properties, which were asked for with all bytes of the struct, breaks PLG-5; empty: it does
/// not.
inline std::string wrong_size_of_properties(const tutti_net_properties& properties) {
  constexpr size_t kLeast = offsetof(tutti_net_properties, rail) + sizeof properties.rail;  // of ABI 1.0
  if (properties.struct_size >= kLeast && properties.struct_size <= sizeof properties) return {};
  return fmt::format("struct_size is {}; properties sets it to the bytes that it wrote, {} to {} (PLG-5)",
                     properties.struct_size, kLeast, sizeof properties);
}

}  // namespace tutti::plugin
