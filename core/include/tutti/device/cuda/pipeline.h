// SPDX-License-Identifier: Apache-2.0
// The pipeline of a CTA of the Simple wire. For nvcc.
//
//   planner   one warp: plans moves, one after another, as peers let them be made
//   loader    one warp: posts them, and asks for what they read, tile by tile, into the stages
//   workers   fold the tiles of what several ranks contribute, where they lie: a warp to a tile
//   storers   take moves in turn: store their tiles where they belong, and see that they are there
//   teller    one warp: tells peers, in the order of moves; of as many at once as are there
//
// Data passes through shared memory by bulk copies, so loads of some moves and stores of others are on their way
// together, without threads that wait for each. A fence between GPUs takes 1 µs, and several while the link is busy:
// what is stored meanwhile shares the next. What bulk copies cannot take (places that are not multiples of 16 bytes,
// chips without them) the workers move themselves. An SM stores about 50 GB/s, wherever to: all that it stores counts,
// not what goes to peers alone.
#pragma once

#include "tutti/device/cuda/cta.h"
#include "tutti/device/cuda/gate.h"
#include "tutti/device/cuda/move.h"
#include "tutti/device/cuda/pipeline_size.h"

namespace tutti::device {

inline constexpr uint32_t kWorkers = kWorkerWarps * 32;
inline constexpr uint32_t kPosted = 16;   // moves
inline constexpr uint32_t kResults = 32;  // more than tiles and moves that are on their way
static_assert(kResults >= kPosted + kMostStages);
static_assert(kWorkerWarps <= kLeastStages);  // wait_loaded()

enum class MoveKind : uint32_t {
  kTell,    ///< nothing to move, but peers to tell
  kCopy,    ///< by bulk copies alone
  kFold,    ///< with workers in between
  kDirect,  ///< by workers alone
  kEnd,
};

/// Where a tile is in shared memory on its way, and how many tiles were there before it.
struct Stage {
  uint32_t index;
  uint32_t turn;

  __device__ __forceinline__ uint8_t* memory() const {
    extern __shared__ __align__(128) uint8_t stages[];
    return stages + index * kStageBytes;
  }
  /// `tiles` tiles on, where there are `stages` stages.
  __device__ __forceinline__ void advance(uint32_t tiles, uint32_t stages) {
    for (index += tiles; index >= stages; index -= stages) ++turn;
  }
};

/// A move: what is read and written, and who is told of it then.
struct Move {
  MoveKind kind;
  uint32_t bytes;
  uint32_t tile_bytes;    ///< of each source in a stage
  Stage first_stage;      ///< of its first tile
  uint32_t first_result;  ///< tiles, and direct moves, before it that workers had
  Operands operands;
  uint32_t* boxes[32];  ///< by lane of the teller: where, or null; those of the second half speak of what was stored
  uint32_t numbers[32];
};

/// What the threads of a CTA share. Turns count moves, from 0 on.
struct Pipeline {
  static constexpr uint32_t kSingleGates = 3 * kPosted + 2 * kMostStages;  // passed by one arrival
  static constexpr uint32_t kGates = kSingleGates + kPosted + kResults;
  Gate gates[kGates];
  Move moves[kPosted];
  uint32_t stages;  ///< 0: the kernel was started without room for them, or there are no bulk copies
  uint32_t told;    ///< moves that peers have been told of
  uint32_t stopped;
  /// What the planner has heard, by peer: messages that have come, and messages that the peer is done with.
  uint32_t heard[2][TUTTI_CUDA_MAX_RANKS];
  static constexpr uint32_t kFilled = 0;
  static constexpr uint32_t kFreed = 1;
  uint32_t opened[TUTTI_CUDA_MAX_RANKS];  ///< by peer: what is known of its output, 0: nothing
  static constexpr uint32_t kHeardOf = 1;
  static constexpr uint32_t kOpened = 2;  ///< it is free

  /// One thread, before all meet. Straight on, as there is nothing to wait for between two gates whose places
  /// are known to the compiler; else each takes some 60 cycles.
  __device__ __forceinline__ void init() {
    told = stopped = 0;
    stages = kHasBulkCopies ? dynamic_shared_bytes() / kStageBytes : 0;
    if (stages < kLeastStages) stages = 0;
#pragma unroll
    for (uint32_t i = 0; i < kGates; ++i) {
      gates[i].init(i < kSingleGates ? 1 : i < kSingleGates + kPosted ? kWorkerWarps + 1 : kWorkerWarps);
    }
    fence_bulk_shared();
  }

  // Gates of moves, by turn, of stages, and of results.
  __device__ __forceinline__ Gate& planned(uint32_t turn) {
    return gates[turn % kPosted];
  }
  __device__ __forceinline__ Gate& posted(uint32_t turn) {
    return gates[kPosted + turn % kPosted];
  }
  __device__ __forceinline__ Gate& stored(uint32_t turn) {
    return gates[2 * kPosted + turn % kPosted];
  }
  __device__ __forceinline__ Gate& loaded(Stage stage) {
    return gates[3 * kPosted + stage.index];
  }
  __device__ __forceinline__ Gate& emptied(Stage stage) {
    return gates[3 * kPosted + kMostStages + stage.index];
  }
  __device__ __forceinline__ Gate& vacant(uint32_t turn) {
    return gates[kSingleGates + turn % kPosted];
  }
  __device__ __forceinline__ Gate& worked(uint32_t result) {
    return gates[kSingleGates + kPosted + result % kResults];
  }

  /// The move of a turn, once it is posted.
  __device__ __forceinline__ const Move& await(uint32_t turn) {
    posted(turn).wait(turn / kPosted);
    return moves[turn % kPosted];
  }
  __device__ __forceinline__ void wait_emptied(Stage stage) {
    if (stage.turn > 0) emptied(stage).wait(stage.turn - 1);
  }
  /// For who needs the tile before its stage can be emptied. A gate tells a turn from its neighbours only: the turn
  /// before must be known to be over.
  __device__ __forceinline__ void wait_loaded(Stage stage) {
    wait_emptied(stage);
    loaded(stage).wait(stage.turn);
  }
  __device__ __forceinline__ void wait_worked(uint32_t result) {
    worked(result).wait(result / kResults);
  }
  /// Whether peers have been told of all moves before this turn's.
  __device__ __forceinline__ bool all_told(uint32_t turn) const {
    return *const_cast<const volatile uint32_t*>(&told) >= turn;
  }
  __device__ __forceinline__ bool is_stopped() const {
    return *const_cast<const volatile uint32_t*>(&stopped) != 0;
  }
};

/// The workers.
template <class T, class Op>
__device__ __forceinline__ void work(Pipeline& pipeline, uint64_t scalar) {
  const uint32_t thread = threadIdx.x;
  const uint32_t warp = thread / 32;
  const uint32_t stages = pipeline.stages;
  const auto arrive = [&](Gate& gate, uint32_t times) {
    __syncwarp();
    if (thread % 32 == 0) gate.arrive(times);
  };
  for (uint32_t turn = 0;; ++turn) {
    const Move& move = pipeline.await(turn);
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
        arrive(pipeline.worked(result), kWorkerWarps);  // for all
      }
    } else if (move.kind == MoveKind::kDirect) {
      move_slice<T, Op>(move.operands, move.bytes, thread, kWorkers, scalar);
      fence_bulk();  // bulk copies, here or at a peer, may read it
      arrive(pipeline.worked(result), 1);
    }
    arrive(pipeline.vacant(turn), 1);
  }
}

/// One thread: storer `storer`.
__device__ __forceinline__ void store(Pipeline& pipeline, uint32_t storer) {
  const uint32_t stages = pipeline.stages;
  for (uint32_t turn = storer;; turn += kStorers) {
    const Move& move = pipeline.await(turn);
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

/// The teller.
__device__ __forceinline__ void tell(Pipeline& pipeline, uint32_t lane) {
  const auto is_stored = [&](uint32_t turn) { return pipeline.stored(turn).has_passed(turn / kPosted); };
  const auto ends = [&](uint32_t turn) { return pipeline.moves[turn % kPosted].kind == MoveKind::kEnd; };
  for (uint32_t turn = 0;;) {
    pipeline.stored(turn).wait(turn / kPosted);
    uint32_t end = turn;
    bool stores = false;
    for (; end - turn < kPosted && __all_sync(0xffffffffu, is_stored(end)) && !ends(end); ++end) {
      stores = stores || (lane >= 16 && pipeline.moves[end % kPosted].boxes[lane] != nullptr);
    }
    if (end == turn) return;
    if (__any_sync(0xffffffffu, stores)) fence_release();
    for (; turn < end; ++turn) {
      const Move& move = pipeline.moves[turn % kPosted];
      if (move.boxes[lane] != nullptr) store_relaxed(move.boxes[lane], move.numbers[lane]);
      __syncwarp();
      if (lane == 0) pipeline.vacant(turn).arrive();
    }
    if (lane == 0) *const_cast<volatile uint32_t*>(&pipeline.told) = turn;
  }
}

/// The loader.
__device__ __forceinline__ void load(Pipeline& pipeline, uint32_t lane) {
  const uint32_t stages = pipeline.stages;
  for (uint32_t turn = 0, ends = 0; ends < kStorers; ++turn) {
    pipeline.planned(turn).wait(turn / kPosted);
    const Move& move = pipeline.moves[turn % kPosted];
    // Once all is stored the place may be another move's.
    const bool bulk = move.kind == MoveKind::kCopy || move.kind == MoveKind::kFold;
    const uint32_t bytes = bulk ? move.bytes : 0;
    const uint32_t tile_bytes = move.tile_bytes;
    const uint32_t sources = move.operands.from_count;
    const uint8_t* const from = bulk && lane < sources ? move.operands.from[lane] : nullptr;
    Stage stage = move.first_stage;
    if (move.kind == MoveKind::kEnd) ++ends;
    __syncwarp();
    if (lane == 0) pipeline.posted(turn).arrive();
    for (uint32_t at = 0; at < bytes; at += tile_bytes, stage.advance(1, stages)) {
      pipeline.wait_emptied(stage);
      const uint32_t now = min(tile_bytes, bytes - at);
      Gate& loaded = pipeline.loaded(stage);
      if (lane == 0) loaded.arrive_expecting(now * sources);
      __syncwarp();
      if (lane < sources) loaded.load(stage.memory() + lane * tile_bytes, from + at, now);
    }
  }
}

/// The planner, less what it waits for: numbers moves that have been filled in.
class Planner {
 public:
  __device__ __forceinline__ Planner(Pipeline& pipeline, uint32_t lane) : pipeline_(pipeline), lane_(lane) {}

  /// Waits until the pipeline is there, the first time. What needs no pipeline is best read before.
  __device__ __forceinline__ void begin() {
    if (begun_) return;
    begun_ = true;
    __syncwarp();
    __syncthreads();
    stages_ = pipeline_.stages;
  }
  /// The next move to plan; told to nobody so far.
  __device__ __forceinline__ Move& next() {
    if (turn_ >= kPosted) pipeline_.vacant(turn_).wait(turn_ / kPosted - 1);
    Move& move = pipeline_.moves[turn_ % kPosted];
    move.boxes[lane_] = nullptr;
    __syncwarp();
    return move;
  }
  /// Moves so far.
  __device__ __forceinline__ uint32_t turn() const { return turn_; }

  /// Ends what next() returned, with its operands. All lanes: whether places that the lane knows are multiples of 16.
  __device__ __forceinline__ void plan(Move& move, uint32_t bytes, bool aligned) {
    __syncwarp();
    const bool bulk = __all_sync(0xffffffffu, aligned) && bytes % 16 == 0 && stages_ > 0;
    const uint32_t sources = move.operands.from_count;
    const bool copies = sources == 1 && move.operands.divisor == 0 && move.operands.scaled == kNone;
    const MoveKind kind = !bulk ? MoveKind::kDirect : copies ? MoveKind::kCopy : MoveKind::kFold;
    // Divisions take a warp long.
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
  /// Likewise for a move that only tells.
  __device__ __forceinline__ void plan_words(Move& move) { announce(move, MoveKind::kTell); }

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

  Pipeline& pipeline_;
  const uint32_t lane_;
  bool begun_ = false;
  uint32_t stages_ = 0;
  uint32_t turn_ = 0;
  Stage stage_ = {};  // of the next tile
  uint32_t result_ = 0;
};

}  // namespace tutti::device
