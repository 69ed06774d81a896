// SPDX-License-Identifier: Apache-2.0
// Launches of kernels, encoded from plans and calls. No function calls CUDA or needs a GPU, and builds without CUDA
// have them, too: the communicator and the emulator of the tests encode with the same functions.
//
// Order for a collective: fit_kernels() for the plans; lower_channels() for the programs; connections for slot_peers()
// of the programs; is_large() for the form. Small form: place_links(), encode_collective(). Large form: LargePrograms
// (large_programs.h) in memory of the GPU, then encode_collective() with their addresses. Buffers, scalar and place are
// set for each call afterwards.
//
// Threads: any. Functions read their arguments and write the launch alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/call.h"
#include "backend/cuda/channel_plans.h"
#include "program/lower.h"
#include "program/lower_strands.h"
#include "program/passes/as_copies.h"
#include "program/passes/direct_store.h"
#include "program/plan.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"

namespace tutti::backend {

/// Plans as kernels can run them, and the layout for which lower_channels() and encode_collective() must be called.
struct KernelPlans {
  ChannelPlans plans;
  tutti_slot_layout layout{};
  uint32_t slots = 0;        ///< messages of a chunk that the plans need room for on a connection, at most
  bool has_changed = false;  ///< the plans are not those that were given, and must be proved again for `slots`
};

/// Splits messages of several chunks, and orders the steps of all ranks so that the messages fit the connections of
/// `layout`. A chunk then fills fewer slots, so that a connection has room for several messages. Plans whose messages
/// all have one chunk stay as they are. Fails (kUnsupported) as split_messages() and fit_slots() of program/passes do.
Result<KernelPlans> fit_kernels(ChannelPlans plans, const tutti_slot_layout& layout);

/// Lowers and aligns the plans of all channels. All ranks are needed, because a rank's program depends on its peers.
/// `direct_store`: messages go straight to registered outputs where the pass direct_store permits it, unless a plan has
/// strands. Sets `room` of the programs, if the plans need room for more messages than connections have for chunks of
/// the largest size. Fails as program::lower() does.
Result<program::Programs> lower_channels(const ChannelPlans& plans, bool in_place, bool direct_store,
                                         const tutti_slot_layout& layout);

/// The programs of one rank, by channel, of one channel or more. A single program if all channels have the same, and no
/// strands.
std::vector<program::Program> programs_of_rank(const program::Programs& programs, uint32_t rank);

/// How a GPU runs the strands of a call.
struct StrandChoice {
  uint32_t ctas = 1;      ///< CTAs of a channel on the rank with the most strands; 1: no rank has any, or all run lists
  uint32_t channels = 1;  ///< the most of a launch; with strands, whole clusters (TUTTI_CUDA_CLUSTER) if there are any
  std::string why_lists;  ///< the reason for lists, although some plan has strands
};
/// `plans`: with their strands, without repeats. `protocol_runs_strands`: tutti_protocol_properties.strands.
/// `most_ctas`: of a launch. `strand_ctas`: of a launch with strands, of which the GPU of each rank holds so many at
/// the same time. All ranks choose alike.
StrandChoice choose_strands(const ChannelPlans& plans, bool protocol_runs_strands, uint32_t most_ctas,
                            uint32_t strand_ctas);

/// The strands of each program of programs_of_rank(), from the plans that lower_channels() took. Empty if the rank's
/// plans have no strands.
std::vector<program::Strands> strands_of_rank(const ChannelPlans& plans, uint32_t rank);

/// tutti_cuda_tables.strand_count for the strands of a rank's programs; 0 for none.
uint32_t ctas_of_channel(std::span<const program::Strands> strands);

/// The peers of which a rank needs slots, over all its programs.
program::SlotPeers slot_peers(std::span<const program::Program> programs);

/// Whether a launch has the large form. `programs`: the programs of the rank; empty for launches of messages.
bool is_large(uint32_t rank_count, std::span<const program::Program> programs);

/// The size of the scratch buffer of a launch whose blocks have `block_bytes`. `programs`: the programs of the rank.
/// The CTAs of all channels share the buffer, because each has its own part of each block.
uint64_t scratch_bytes(std::span<const program::Program> programs, uint64_t block_bytes);

/// Programs within the limits of the small form, in that form. For the large form: large_programs.h.
std::vector<tutti_cuda_program> small_programs(std::span<const program::Program> programs);

/// Puts links, by rank, into a launch of the small form.
void place_links(std::span<const tutti_cuda_link> links, tutti_cuda_launch& launch);

/// The part of a launch of a collective that neither its call nor its program gives.
struct LaunchShape {
  uint32_t ctas = 1;            ///< from 1 to TUTTI_CUDA_MAX_CTAS
  uint32_t max_threads = 1024;  ///< limit of a CTA, above 0; a CTA of a small call has fewer, but 64 at least
  tutti_slot_layout layout{};   ///< layout of the protocol's connections
  uint32_t program_count = 1;
  const tutti_cuda_program* programs = nullptr;  ///< small form: memory of the GPU, if there is more than one program
  tutti_cuda_tables tables{};                    ///< large form: memory of the GPU
};

/// Puts a collective into a launch whose rank and rank_count are set, and the links in the small form. `program` is the
/// first of the rank's programs, and `call.count` is above 0. Elements of a call that does not reduce keep their type.
void encode_collective(const Call& call, const program::Program& program, const LaunchShape& shape,
                       tutti_cuda_launch& launch);

/// Puts copies of whole blocks of `block_bytes` into a launch, for a protocol with `needs_registered`.
void encode_copies(const program::Copies& copies, uint64_t block_bytes, tutti_cuda_launch& launch);

}  // namespace tutti::backend
