// SPDX-License-Identifier: Apache-2.0
// The kernels of the GPU protocols, run on the CPU for all ranks together (emulator/cta.h): their own code over memory
// that ranks share, with slots, mailboxes and sequences as the communicator lays them out.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/scratch_memory.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"
#include "unit/program_calls.h"
#include "unit/relayed_links.h"

namespace tutti::test {

enum class Wire { kLL, kLL128, kSimple };

class KernelMachine {
 public:
  struct Options {
    Wire wire = Wire::kLL;
    uint32_t rank_count = 1;
    tutti_slot_layout layout{};  ///< slot_stride: bytes of a slot
    uint32_t ctas = 1;           ///< CTAs that connections are made for
    uint32_t threads = 64;       ///< per CTA; Simple's is its own
    bool stages = true;          ///< Simple: shared memory for bulk copies, of any size that chips may have
    uint32_t first_number = 0;   ///< the first sequence number
    uint32_t tail_rest = 0;      ///< so many numbers ago was the last message of each connection
    uint32_t done_rest = 0;      ///< so many numbers ago was the last `done` signal of each connection
    uint64_t seed = 0;
    bool floats = false;  ///< elements are float, not uint8
    /// Bits 1 << (rank modulo 64): ranks whose launches have the large form, also if the small form would do.
    uint64_t large_ranks = 0;
    bool scatters = false;  ///< Simple: the slots of each CTA lie in a place of their own
    uint32_t hosts = 1;     ///< LL: rank r is on host r modulo `hosts`; relays join hosts
    /// A fault: receivers say nothing of messages that their senders have not sent. Only for one machine at a time.
    bool is_silent_of_gaps = false;
    bool drops_waits = false;  ///< a fault: no step waits for other strands
    /// Counts the signals between strands, for signals(). Only for one machine at a time.
    bool counts_signals = false;
    std::chrono::milliseconds signal_time{};  ///< so long does each counted signal take
    uint64_t timeout_ns = 300'000'000'000;
  };
  explicit KernelMachine(const Options& options);

  /// Runs calls in a row, each on `ctas` CTAs of every rank; ranks need not wait for each other between calls. "" if
  /// all ended, else the failure.
  std::string run(std::span<const ProgramCall> calls, uint32_t ctas);
  /// Runs launches, by rank. A rank may have none.
  std::string run(std::span<const std::vector<tutti_cuda_launch>> launches);

  /// The rank's connections, for messages that are to be put in.
  tutti_cuda_launch launch(uint32_t rank);
  /// The rank's part of a call.
  tutti_cuda_launch launch(uint32_t rank, const ProgramCall& call, uint32_t ctas);

  /// Whether all counts of strands are 0, as between launches.
  bool is_at_rest() const;
  /// How often a strand has stored its count.
  uint32_t signals() const { return signals_.load(std::memory_order_relaxed); }

  /// The last number that rank `from` has signaled to rank `to` for its CTA 0.
  uint32_t done(uint32_t from, uint32_t to) const {
    return mailboxes_[(size_t{to} * options_.rank_count + from) * options_.ctas].done;
  }

  /// Any thread, while they run.
  void abort();
  /// Between runs: the next launches run.
  void end_abort();
  uint32_t fault(uint32_t rank) const { return __atomic_load_n(&controls_[rank].fault, __ATOMIC_ACQUIRE); }
  const tutti_cuda_control& control(uint32_t rank) const { return controls_[rank]; }

 private:
  struct alignas(128) Line {
    std::array<uint8_t, 128> bytes;
  };
  /// A rank's data of the large form. It stays at its address.
  struct Tables {
    std::vector<tutti_cuda_link> links;
    std::vector<uint64_t> programs{};  ///< the block of backend::LargePrograms
    program::Strands strands{};
  };
  /// A rank's scratch buffer, as the product makes it.
  struct Scratch {
    std::deque<std::vector<uint8_t>> buffers;
    backend::ScratchMemory memory{
        [this](uint64_t bytes) -> Result<uint8_t*> { return buffers.emplace_back(bytes, uint8_t{0xc5}).data(); }};
  };
  std::string describe();
  void start_relays();
  std::vector<tutti_cuda_link> links_of(uint32_t rank);
  void scatter(tutti_cuda_link& link);
  uint32_t without_gaps(const uint32_t* word, uint32_t number) const;
  bool is_count(const uint32_t* word) const;
  uint32_t number_to_store(const uint32_t* word, uint32_t number);
  bool wants_large(uint32_t rank) const { return (options_.large_ranks >> rank % 64 & 1) != 0; }

  Options options_;
  uint64_t link_bytes_;                                     // slots of one connection
  std::vector<Line> slots_;                                 // [receiver][sender]
  std::vector<tutti_cuda_mailbox> mailboxes_;               // [told][signaler][CTA]
  std::vector<std::vector<tutti_cuda_sequence>> programs_;  // by rank
  std::vector<std::vector<tutti_cuda_sequence>> messages_;  // by rank: sequences of launches of messages
  std::vector<std::vector<tutti_cuda_progress>> progress_;  // by rank and channel
  std::atomic<uint32_t> signals_ = 0;                       // relaxed: read when no kernel runs
  std::vector<tutti_cuda_control> controls_;
  std::deque<Tables> tables_;
  std::deque<std::vector<tutti_cuda_slots>> scattered_;  // each stays at its address
  std::deque<Scratch> scratch_;                          // by rank
  std::mutex relays_mutex_;                              // guards relay_failure_
  std::string relay_failure_;
  std::unique_ptr<RelayedLinks> relays_;  // ends first
};

}  // namespace tutti::test
