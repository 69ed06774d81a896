// SPDX-License-Identifier: Apache-2.0
// The pass `number_messages`: the numbers by which both ends of a connection name a message.
//
// number_messages()  Finds    the place of each send and receive among those of its connection and direction.
//                    Assumes  a program whose steps and peers are complete. Both ends of a connection have the same
//                             order of messages, as a proof shows.
//                    Changes  `message` of each peer, from 0, and `messages`: those of the busiest connection.
// even_messages()    Finds    the busiest connection of all ranks and channels.
//                    Assumes  programs that number_messages() has numbered.
//                    Changes  `messages` of each program. In each loop, all connections then advance by this number.
#pragma once

#include <vector>

#include "program/program.h"

namespace tutti::program {

/// Numbers the messages of one rank's program for one channel.
void number_messages(Program& program);

/// The programs of a call: by channel, then by rank.
using Programs = std::vector<std::vector<Program>>;

/// Gives all programs of a call the same number of messages per loop.
void even_messages(Programs& programs);

}  // namespace tutti::program
