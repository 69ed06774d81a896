// SPDX-License-Identifier: Apache-2.0
// The faults of the mock network, by the names that its setting `fault` takes.
#pragma once

#include <array>
#include <string_view>

namespace tutti::mock {

enum class Fault {
  kNone,
  kLost,              // a message is not sent
  kDoubled,           // a message is sent twice
  kSwapped,           // two messages change places
  kCorrupted,         // one byte of a message changes
  kTruncated,         // the end of a large message is missing
  kWrongLength,       // a receive reports one byte more
  kRoomAsLength,      // a receive reports the bytes of its buffer
  kWritesBeyond,      // a receive writes a byte behind its message
  kLosesEmpty,        // messages of 0 bytes are not sent
  kRoundsAddress,     // receives write to an aligned address
  kFewRequests,       // at most 16 requests are outstanding
  kEarlyReceive,      // a receive is complete when it is posted
  kEarlySend,         // a send is complete before its buffer is free
  kIgnoresTags,       // messages match the oldest receive
  kNoGroups,          // claims grouped receives, and has none
  kGroupLengths,      // a grouped receive reports the first length for all parts
  kIgnoresRoom,       // a message that is too long completes its receive
  kIgnoresOffset,     // sends from the beginning of the registration
  kLeaksRequests,     // memory of each message stays
  kLeaksDescriptors,  // close_connection leaves the socket open
  kLeaksCancelled,    // cancel leaves the socket open
  kUsesAfterClose,    // receives go on after close_connection
  kReadsAfterClose,   // sends go on after close_connection
  kEndBeforeData,     // the end of a connection overtakes its messages
  kSilentEnd,         // requests of an ended connection stay for ever
  kWrongCode,         // an ended connection is TUTTI_INTERNAL
  kNoReason,          // failures without a text
  kBlockingTest,      // test does not return
  kBlockingConnect,   // connect sleeps
  kSlowTest,          // test takes 500 µs
  kSleepingSend,      // send sleeps for 40 ms
  kThrowingSend,      // an exception leaves send
  kCrashes,           // close_connection ends the process
  kNeverConnects,     // connect returns TUTTI_AGAIN for ever
  kStrangerFails,     // accept fails for a stranger
  kStrangerBlocks,    // a silent stranger delays all connections
  kLyingArm,          // arm says that there is no work
  kSleeplessArm,      // arm says that there is work
  kClosedEventFd,     // event_fd gives a descriptor that is not open
  kUnstableDevices,   // the list of devices changes
  kNoHostMemory,      // the device does not name memory of the host
  kBlocksStopped,     // a full socket blocks send
  kMissingFlush,      // flush leaves received data of a GPU in a buffer of the plugin
  kLeaksListeners,    // close_listener leaves the socket open
  kLeaksContexts,     // destroy leaves the epoll descriptor open
  kControlName,       // the name of the device has a line break
  kFailingCreate,     // create fails
  kBlockingOpen,      // open does not return
  kCrashingOpen,      // open ends the process
  kCrashingClose,     // close ends the process
  kCount,
};

inline constexpr std::array<std::string_view, static_cast<size_t>(Fault::kCount)> kFaultNames = {"none",
                                                                                                 "lost",
                                                                                                 "doubled",
                                                                                                 "swapped",
                                                                                                 "corrupted",
                                                                                                 "truncated",
                                                                                                 "wrong_length",
                                                                                                 "room_as_length",
                                                                                                 "writes_beyond",
                                                                                                 "loses_empty",
                                                                                                 "rounds_address",
                                                                                                 "few_requests",
                                                                                                 "early_receive",
                                                                                                 "early_send",
                                                                                                 "ignores_tags",
                                                                                                 "no_groups",
                                                                                                 "group_lengths",
                                                                                                 "ignores_room",
                                                                                                 "ignores_offset",
                                                                                                 "leaks_requests",
                                                                                                 "leaks_descriptors",
                                                                                                 "leaks_cancelled",
                                                                                                 "uses_after_close",
                                                                                                 "reads_after_close",
                                                                                                 "end_before_data",
                                                                                                 "silent_end",
                                                                                                 "wrong_code",
                                                                                                 "no_reason",
                                                                                                 "blocking_test",
                                                                                                 "blocking_connect",
                                                                                                 "slow_test",
                                                                                                 "sleeping_send",
                                                                                                 "throwing_send",
                                                                                                 "crashes",
                                                                                                 "never_connects",
                                                                                                 "stranger_fails",
                                                                                                 "stranger_blocks",
                                                                                                 "lying_arm",
                                                                                                 "sleepless_arm",
                                                                                                 "closed_event_fd",
                                                                                                 "unstable_devices",
                                                                                                 "no_host_memory",
                                                                                                 "blocks_stopped",
                                                                                                 "missing_flush",
                                                                                                 "leaks_listeners",
                                                                                                 "leaks_contexts",
                                                                                                 "control_name",
                                                                                                 "failing_create",
                                                                                                 "blocking_open",
                                                                                                 "crashing_open",
                                                                                                 "crashing_close"};

}  // namespace tutti::mock
