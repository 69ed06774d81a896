// SPDX-License-Identifier: Apache-2.0
// The pipeline of a CTA of Simple. For nvcc.
//
//   planner   one warp: plans moves in the order of the program, as soon as peers permit them
//   loader    one warp: posts moves, and loads their sources into the stages by bulk copies, tile by tile
//   workers   fold the sources of a tile in shared memory, one warp per tile
//   storers   two threads that take moves in turn: they store the tiles to all destinations and wait for completion
//   signaler  one warp: executes a fence, then signals peers in the order of moves, for all complete moves at once
//
// Data passes through shared memory by bulk copies. Loads of some moves and stores of different moves are thus under
// way at the same time, and no thread waits for a single copy. A fence between GPUs takes 1 µs, and several µs while
// the link is busy; all stores that complete meanwhile share the next fence. Bulk copies need addresses that are
// multiples of 16 bytes, and a chip that has them. The workers move all remaining data themselves. An SM stores about
// 50 GB/s to all destinations together, not only to peers.
//
// Threads: each function states its warp. Pipeline's members are called by any thread.
#pragma once

#include "tutti/device/cuda/cta.h"
#include "tutti/device/cuda/mbarrier.h"
#include "tutti/device/cuda/move.h"
#include "tutti/device/cuda/pipeline_size.h"

namespace tutti::device {

inline constexpr uint32_t kWorkers = kWorkerWarps * 32;
inline constexpr uint32_t kResults = 32;      // more than the tiles and moves under way
static_assert(kWorkerWarps <= kLeastStages);  // wait_loaded()

enum class MoveKind : uint32_t {
  kTell,    ///< no data, only signals
  kCopy,    ///< by bulk copies alone
  kFold,    ///< bulk copies, and a fold by workers
  kDirect,  ///< by workers alone
  kEnd,
  kStrand,  ///< no data; the first signal is for strands of this GPU
};

/// A stage: its index, and how many tiles it held before.
struct Stage {
  uint32_t index;
  uint32_t turn;

  __device__ __forceinline__ uint8_t* memory() const {
    extern __shared__ __align__(128) uint8_t stages[];
    return stages + index * kStageBytes;
  }
  /// Advances by `tiles` tiles in a ring of `stages` stages.
  __device__ __forceinline__ void advance(uint32_t tiles, uint32_t stages) {
    for (index += tiles; index >= stages; index -= stages) ++turn;
  }
};

/// One move: sources, destinations, and the signals after it.
template <class Form>
struct MoveOf {
  MoveKind kind;
  uint32_t bytes;
  uint32_t tile_bytes;    ///< bytes of each source in a stage
  Stage first_stage;      ///< stage of its first tile
  uint32_t first_result;  ///< tiles and direct moves of workers before this move
  OperandsOf<Form::kRanks> operands;
  /// Mailbox words or null. First half: of the sources' ranks; second half: of the destinations' ranks, after stores.
  /// Lane l of the signaler has the signals l, l + 32, and so on.
  static constexpr uint32_t kSignals = 2 * Form::kRanks;
  uint32_t* boxes[kSignals];
  uint32_t numbers[kSignals];
};

/// The shared state of a CTA's threads. Turns count moves from 0 on.
template <class Form>
struct PipelineOf {
  using Move = MoveOf<Form>;
  static constexpr uint32_t kPosted = Form::kIsLarge ? 8 : 16;  // moves; moves of the large form take more memory
  static_assert(kResults >= kPosted + kMostStages);
  static constexpr uint32_t kSingleMbarriers = 3 * kPosted + 2 * kMostStages;  // mbarriers with one arrival
  static constexpr uint32_t kMbarriers = kSingleMbarriers + kPosted + kResults;
  Mbarrier mbarriers[kMbarriers];
  Move moves[kPosted];
  uint32_t stages;  ///< 0: the kernel was started without memory for stages, or the chip has no bulk copies
  uint32_t told;    ///< moves whose signals have been sent
  uint32_t stopped;
  /// The planner's knowledge, by peer: messages that have arrived, and messages that the peer no longer needs.
  uint32_t heard[2][Form::kRanks];
  static constexpr uint32_t kFilled = 0;
  static constexpr uint32_t kFreed = 1;
  uint32_t ready[Form::kRanks];  ///< by peer: the state of its ready signal; 0: none
  static constexpr uint32_t kHeardOf = 1;
  static constexpr uint32_t kReady = 2;  ///< its output is free

  /// One thread, before the first barrier of all threads. The loop is unrolled: if the compiler knows the addresses,
  /// the mbarriers do not wait for each other. Otherwise each mbarrier takes about 60 cycles.
  __device__ __forceinline__ void init() {
    told = stopped = 0;
    stages = kHasBulkCopies ? dynamic_shared_bytes() / kStageBytes : 0;
    if (stages < kLeastStages) stages = 0;
#pragma unroll
    for (uint32_t i = 0; i < kMbarriers; ++i) {
      mbarriers[i].init(i < kSingleMbarriers ? 1 : i < kSingleMbarriers + kPosted ? kWorkerWarps + 1 : kWorkerWarps);
    }
    fence_bulk_shared();
  }

  // The mbarriers: of moves by turn, of stages, and of results.
  __device__ __forceinline__ Mbarrier& planned(uint32_t turn) {
    return mbarriers[turn % kPosted];
  }
  __device__ __forceinline__ Mbarrier& posted(uint32_t turn) {
    return mbarriers[kPosted + turn % kPosted];
  }
  __device__ __forceinline__ Mbarrier& stored(uint32_t turn) {
    return mbarriers[2 * kPosted + turn % kPosted];
  }
  __device__ __forceinline__ Mbarrier& loaded(Stage stage) {
    return mbarriers[3 * kPosted + stage.index];
  }
  __device__ __forceinline__ Mbarrier& emptied(Stage stage) {
    return mbarriers[3 * kPosted + kMostStages + stage.index];
  }
  __device__ __forceinline__ Mbarrier& vacant(uint32_t turn) {
    return mbarriers[kSingleMbarriers + turn % kPosted];
  }
  __device__ __forceinline__ Mbarrier& worked(uint32_t result) {
    return mbarriers[kSingleMbarriers + kPosted + result % kResults];
  }

  /// The move of a turn, once it is posted.
  __device__ __forceinline__ const Move& await(uint32_t turn) {
    posted(turn).wait(turn / kPosted);
    return moves[turn % kPosted];
  }
  __device__ __forceinline__ void wait_emptied(Stage stage) {
    if (stage.turn > 0) emptied(stage).wait(stage.turn - 1);
  }
  /// For threads that need the tile before its stage can be emptied. An mbarrier distinguishes only neighbouring
  /// phases, so the previous phase must be known to be complete.
  __device__ __forceinline__ void wait_loaded(Stage stage) {
    wait_emptied(stage);
    loaded(stage).wait(stage.turn);
  }
  __device__ __forceinline__ void wait_worked(uint32_t result) {
    worked(result).wait(result / kResults);
  }
  /// Whether the signals of all moves before this turn have been sent.
  __device__ __forceinline__ bool all_told(uint32_t turn) const {
    return *const_cast<const volatile uint32_t*>(&told) >= turn;
  }
  __device__ __forceinline__ bool is_stopped() const {
    return *const_cast<const volatile uint32_t*>(&stopped) != 0;
  }
};

/// The role of the workers. All threads of the worker warps.
template <class T, class Op, class Form>
__device__ __forceinline__ void work(PipelineOf<Form>& pipeline, uint64_t scalar) {
  const uint32_t thread = threadIdx.x;
  const uint32_t warp = thread / 32;
  const uint32_t stages = pipeline.stages;
  const auto arrive = [&](Mbarrier& mbarrier, uint32_t times) {
    __syncwarp();
    if (thread % 32 == 0) mbarrier.arrive(times);
  };
  for (uint32_t turn = 0;; ++turn) {
    const MoveOf<Form>& move = pipeline.await(turn);
    if (move.kind == MoveKind::kEnd) return;
    uint32_t result = move.first_result;
    if (move.kind == MoveKind::kFold) {
      Stage stage = move.first_stage;
      for (uint32_t at = 0; at < move.bytes; at += move.tile_bytes, ++result, stage.advance(1, stages)) {
        if (result % kWorkerWarps != warp) continue;
        const uint32_t bytes = min(move.tile_bytes, move.bytes - at);
        pipeline.wait_loaded(stage);
        fold_tile<T, Op>(move.operands, stage.memory(), move.tile_bytes, bytes, thread % 32, 32, scalar);
        fence_bulk_shared();
        arrive(pipeline.worked(result), kWorkerWarps);  // for all worker warps
      }
    } else if (move.kind == MoveKind::kDirect) {
      move_slice<T, Op>(move.operands, move.bytes, thread, kWorkers, scalar);
      fence_bulk();  // bulk copies of this GPU or of a peer may read the data
      arrive(pipeline.worked(result), 1);
    }
    arrive(pipeline.vacant(turn), 1);
  }
}

/// The role of storer `storer`. One thread.
template <class Form>
__device__ __forceinline__ void store(PipelineOf<Form>& pipeline, uint32_t storer) {
  const uint32_t stages = pipeline.stages;
  for (uint32_t turn = storer;; turn += kStorers) {
    const MoveOf<Form>& move = pipeline.await(turn);
    const bool folds = move.kind == MoveKind::kFold;
    if (folds || move.kind == MoveKind::kCopy) {
      uint32_t result = move.first_result;
      Stage stage = move.first_stage;
      Stage before = {};
      for (uint32_t at = 0; at < move.bytes; at += move.tile_bytes, ++result, stage.advance(1, stages)) {
        if (folds) {
          pipeline.wait_worked(result);
        } else {
          pipeline.wait_loaded(stage);
        }
        const uint32_t bytes = min(move.tile_bytes, move.bytes - at);
        for (uint32_t d = 0; d < move.operands.to_count; ++d) {
          store_bulk(move.operands.to[d] + at, stage.memory(), bytes);
        }
        end_store_group();
        if (at > 0) {
          wait_stores_read<1>();
          pipeline.emptied(before).arrive();
        }
        before = stage;
      }
      wait_stores_read<0>();
      pipeline.emptied(before).arrive();
      wait_stores();
    } else if (move.kind == MoveKind::kDirect) {
      pipeline.wait_worked(move.first_result);
    }
    const bool ends = move.kind == MoveKind::kEnd;
    pipeline.stored(turn).arrive();
    if (ends) return;
  }
}

/// The role of the signaler. One warp.
template <class Form>
__device__ __forceinline__ void tell(PipelineOf<Form>& pipeline, uint32_t lane) {
  constexpr uint32_t kPosted = PipelineOf<Form>::kPosted;
  constexpr uint32_t kSignals = MoveOf<Form>::kSignals;
  const auto is_stored = [&](uint32_t turn) { return pipeline.stored(turn).has_passed(turn / kPosted); };
  const auto ends = [&](uint32_t turn) { return pipeline.moves[turn % kPosted].kind == MoveKind::kEnd; };
  for (uint32_t turn = 0;;) {
    pipeline.stored(turn).wait(turn / kPosted);
    uint32_t end = turn;
    bool stores = false;
    bool is_for_strands = false;
    for (; end - turn < kPosted && __all_sync(0xffffffffu, is_stored(end)) && !ends(end); ++end) {
      if constexpr (Form::kHasStrands) {
        is_for_strands = is_for_strands || pipeline.moves[end % kPosted].kind == MoveKind::kStrand;
      }
      if constexpr (Form::kIsLarge) {
        for (uint32_t i = lane + Form::kRanks; i < kSignals; i += 32) {
          stores = stores || pipeline.moves[end % kPosted].boxes[i] != nullptr;
        }
      } else {
        stores = stores || (lane >= Form::kRanks && pipeline.moves[end % kPosted].boxes[lane] != nullptr);
      }
    }
    if (end == turn) return;
    if (__any_sync(0xffffffffu, stores)) {
      fence_release();
    } else if (Form::kHasStrands && is_for_strands) {
      fence_release_gpu();
    }
    for (; turn < end; ++turn) {
      const MoveOf<Form>& move = pipeline.moves[turn % kPosted];
      if (move.boxes[lane] != nullptr) store_relaxed(move.boxes[lane], move.numbers[lane]);
      if constexpr (Form::kIsLarge) {
        for (uint32_t i = lane + 32; i < kSignals; i += 32) {
          if (move.boxes[i] != nullptr) store_relaxed(move.boxes[i], move.numbers[i]);
        }
      }
      __syncwarp();
      if (lane == 0) pipeline.vacant(turn).arrive();
    }
    if (lane == 0) *const_cast<volatile uint32_t*>(&pipeline.told) = turn;
  }
}

/// The role of the loader. One warp.
template <class Form>
__device__ __forceinline__ void load(PipelineOf<Form>& pipeline, uint32_t lane) {
  constexpr uint32_t kPosted = PipelineOf<Form>::kPosted;
  const uint32_t stages = pipeline.stages;
  for (uint32_t turn = 0, ends = 0; ends < kStorers; ++turn) {
    pipeline.planned(turn).wait(turn / kPosted);
    const MoveOf<Form>& move = pipeline.moves[turn % kPosted];
    // After the stores, a different move may use the address.
    const bool bulk = move.kind == MoveKind::kCopy || move.kind == MoveKind::kFold;
    const uint32_t bytes = bulk ? move.bytes : 0;
    const uint32_t tile_bytes = move.tile_bytes;
    const uint32_t sources = move.operands.from_count;
    const uint8_t* const from = bulk && lane < sources ? move.operands.from[lane] : nullptr;
    const uint8_t* second = nullptr;  // source lane + 32
    if constexpr (Form::kIsLarge) {
      if (bulk && lane + 32 < sources) second = move.operands.from[lane + 32];
    }
    Stage stage = move.first_stage;
    if (move.kind == MoveKind::kEnd) ++ends;
    __syncwarp();
    if (lane == 0) pipeline.posted(turn).arrive();
    for (uint32_t at = 0; at < bytes; at += tile_bytes, stage.advance(1, stages)) {
      pipeline.wait_emptied(stage);
      const uint32_t now = min(tile_bytes, bytes - at);
      Mbarrier& loaded = pipeline.loaded(stage);
      if (lane == 0) loaded.arrive_expecting(now * sources);
      __syncwarp();
      if (lane < sources) loaded.load(stage.memory() + lane * tile_bytes, from + at, now);
      if constexpr (Form::kIsLarge) {
        if (lane + 32 < sources) loaded.load(stage.memory() + (lane + 32) * tile_bytes, second + at, now);
      }
    }
  }
}

/// The queue of the planner: it numbers and announces moves. One warp calls each function with all lanes.
template <class Form>
class Planner {
 public:
  using Move = MoveOf<Form>;

  __device__ __forceinline__ Planner(PipelineOf<Form>& pipeline, uint32_t lane) : pipeline_(pipeline), lane_(lane) {}

  /// Waits at the first call until the pipeline is initialised. Load data that needs no pipeline before this call.
  __device__ __forceinline__ void begin() {
    if (begun_) return;
    begun_ = true;
    __syncwarp();
    __syncthreads();
    stages_ = pipeline_.stages;
  }
  /// Returns the next free move, without signals.
  __device__ __forceinline__ Move& next() {
    if (turn_ >= kPosted) pipeline_.vacant(turn_).wait(turn_ / kPosted - 1);
    Move& move = pipeline_.moves[turn_ % kPosted];
    move.boxes[lane_] = nullptr;
    if constexpr (Form::kIsLarge) {
      for (uint32_t i = lane_ + 32; i < Move::kSignals; i += 32) move.boxes[i] = nullptr;
    }
    __syncwarp();
    return move;
  }
  /// Moves so far.
  __device__ __forceinline__ uint32_t turn() const { return turn_; }

  /// Announces the move that next() returned, with its operands. `aligned`: whether the addresses of this lane are
  /// multiples of 16.
  __device__ __forceinline__ void plan(Move& move, uint32_t bytes, bool aligned) {
    __syncwarp();
    const bool bulk = __all_sync(0xffffffffu, aligned) && bytes % 16 == 0 && stages_ > 0;
    const uint32_t sources = move.operands.from_count;
    const bool copies = sources == 1 && move.operands.divisor == 0 && move.operands.scaled == kNone;
    const MoveKind kind = !bulk ? MoveKind::kDirect : copies ? MoveKind::kCopy : MoveKind::kFold;
    // Shifts, because divisions take long in a warp.
    const uint32_t bits = kStageBits - (sources > 1 ? 1 : 0);
    const uint32_t tile_bytes = sources <= 2 ? 1u << bits : kStageBytes / sources / 128 * 128;
    const uint32_t up = bytes + tile_bytes - 1;
    const uint32_t tiles = !bulk ? 0 : sources <= 2 ? up >> bits : up / tile_bytes;
    if (lane_ == 0) {
      move.bytes = bytes;
      move.tile_bytes = tile_bytes;
      move.first_stage = stage_;
      move.first_result = result_;
    }
    announce(move, kind);
    if (tiles > 0) stage_.advance(tiles, stages_);
    result_ += kind == MoveKind::kFold ? tiles : kind == MoveKind::kDirect ? 1 : 0;
  }
  /// Announces a move without data, which only signals.
  __device__ __forceinline__ void plan_words(Move& move) { announce(move, MoveKind::kTell); }
  /// The same, with a signal for strands in the first place.
  __device__ __forceinline__ void plan_strand_signal(Move& move) { announce(move, MoveKind::kStrand); }

  __device__ __forceinline__ void end() {
    begin();
    for (uint32_t i = 0; i < kStorers; ++i) announce(next(), MoveKind::kEnd);
  }

 private:
  __device__ __forceinline__ void announce(Move& move, MoveKind kind) {
    if (lane_ == 0) move.kind = kind;
    __syncwarp();
    if (lane_ == 0) pipeline_.planned(turn_).arrive();
    ++turn_;
  }

  static constexpr uint32_t kPosted = PipelineOf<Form>::kPosted;

  PipelineOf<Form>& pipeline_;
  const uint32_t lane_;
  bool begun_ = false;
  uint32_t stages_ = 0;
  uint32_t turn_ = 0;
  Stage stage_ = {};  // stage of the next tile
  uint32_t result_ = 0;
};

}  // namespace tutti::device
