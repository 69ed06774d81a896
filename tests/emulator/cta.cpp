// SPDX-License-Identifier: Apache-2.0
#include "emulator/cta.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "emulator/cuda.h"
#include "tutti/device/cuda/pipeline_size.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace tutti::device {
/// As Stage::memory() of tutti/device/cuda/pipeline.h declares it.
extern thread_local uint8_t stages[];
alignas(128) thread_local uint8_t stages[kMostStages * kStageBytes];
}  // namespace tutti::device

namespace tutti::emulator {
namespace {

constexpr uint32_t kWarp = 32;
constexpr size_t kStackBytes = 64 << 10;

[[noreturn]] void fail(const char* what, uint32_t cta, uint32_t thread) {
  std::fprintf(stderr, "emulated GPU: CTA %u, thread %u: %s\n", cta, thread, what);
  std::abort();
}

/// Stacks, kept for the next CTA.
class Stacks {
 public:
  using Stack = std::unique_ptr<char[]>;
  static Stack take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return Stack(new char[kStackBytes]);
    Stack stack = std::move(idle_.back());
    idle_.pop_back();
    return stack;
  }
  static void give(Stack stack) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(stack));
  }

 private:
  static inline std::mutex mutex_;
  static inline std::vector<Stack> idle_;
};

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint32_t below(uint32_t limit) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state_ >> 33) % limit);
  }

 private:
  uint64_t state_;
};

/// A point of execution, and the stack that it runs on. Switches by the compiler's own setjmp make no system calls.
struct Context {
  ucontext_t first{};
  void* at[5];  // as __builtin_setjmp() asks
  bool has_begun = false;
#ifdef __SANITIZE_ADDRESS__
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // of AddressSanitizer
#endif
};

// AddressSanitizer must know the current stack.
#ifdef __SANITIZE_ADDRESS__
void begin_switch(Context& from, const Context& to) {
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
}
void end_switch(const Context& now) {
  __sanitizer_finish_switch_fiber(now.fake_stack, nullptr, nullptr);
}
/// The first switch to a stack. `from` had the stack of a thread, whose place is unknown before.
void end_first_switch(Context& from) {
  __sanitizer_finish_switch_fiber(nullptr, &from.stack, &from.stack_bytes);
}
/// Frames that never ended left their marks on the stack.
void set_stack(Context& context, const char* stack) {
  context.stack = stack;
  context.stack_bytes = kStackBytes;
  __asan_unpoison_memory_region(stack, kStackBytes);
}
#else
void begin_switch(Context& /*from*/, const Context& /*to*/) {}
void end_switch(const Context& /*now*/) {}
void end_first_switch(Context& /*from*/) {}
void set_stack(Context& /*context*/, const char* /*stack*/) {}
#endif

// AddressSanitizer would take a call that does not return for the end of all frames of the stack. So it does not see
// these two functions.

/// A function of its own, because a function may not jump to a point that it sets.
[[noreturn, gnu::noinline, gnu::no_sanitize("address")]] void go_to(Context& to) {
  if (to.has_begun) __builtin_longjmp(to.at, 1);
  to.has_begun = true;
  setcontext(&to.first);
  std::abort();  // setcontext() does not return
}

[[gnu::noinline, gnu::no_sanitize("address")]] void switch_to(Context& from, Context& to) {
  begin_switch(from, to);
  if (__builtin_setjmp(from.at) == 0) go_to(to);
  end_switch(from);
}

class Cta {
 public:
  Cta(const LaunchShape& shape, const std::function<void()>& kernel)
      : shape_(shape), kernel_(kernel), random_(shape.seed), threads_(shape.threads), warps_(shape.threads / kWarp) {
    for (Thread& thread : threads_) {
      thread.stack = Stacks::take();
      ucontext_t& first = thread.context.first;
      getcontext(&first);
      first.uc_stack.ss_sp = thread.stack.get();
      first.uc_stack.ss_size = kStackBytes;
      makecontext(&first, &Cta::enter, 0);
      set_stack(thread.context, thread.stack.get());
    }
    scheduler_.has_begun = true;
  }
  ~Cta() {
    for (Thread& thread : threads_) Stacks::give(std::move(thread.stack));
  }
  Cta(const Cta&) = delete;

  void run();

  void yield() {
    if (random_.below(4) == 0) leave(State::kReady);
  }
  bool meet_cta(Meeting kind, bool vote) {
    Thread& thread = threads_[running_];
    thread.meeting = kind;
    thread.value = vote ? 1 : 0;
    leave(State::kAtCta);
    return threads_[running_].met.votes != 0;
  }
  void wait_for(const std::function<bool()>& condition) {
    threads_[running_].condition = &condition;
    while (!condition()) leave(State::kWaits);
  }
  Met meet_warp(Meeting kind, int32_t value) {
    Thread& thread = threads_[running_];
    thread.meeting = kind;
    thread.value = value;
    leave(State::kAtWarp);
    return threads_[running_].met;
  }

  void copy_later(void* to, const void* from, size_t bytes, std::function<void()> done) {
    work_.push_back({Work::kLoad, running_, 0, to, from, bytes, std::move(done), {}});
  }
  void store_later(void* to, const void* from, size_t bytes) {
    work_.push_back({Work::kRead, running_, threads_[running_].groups, to, from, bytes, {}, {}});
  }
  void end_store_group() { ++threads_[running_].groups; }
  void wait_groups(uint32_t pending, bool stored) {
    wait_for([this, thread = running_, pending, stored] { return !has_groups(thread, pending, stored); });
  }
  const LaunchShape& shape() const { return shape_; }

 private:
  enum class State { kReady, kWaits, kAtWarp, kAtCta, kDone };
  struct Thread {
    Context context;
    Stacks::Stack stack;
    State state = State::kReady;
    Meeting meeting{};
    int32_t value = 0;
    Met met;
    const std::function<bool()>* condition = nullptr;  // of a thread that waits
    uint32_t groups = 0;                               // ended groups of bulk stores
  };
  struct Warp {
    uint32_t done = 0;  // threads
  };
  /// A task of the bulk copy unit.
  struct Work {
    enum Kind { kLoad, kRead, kWrite } kind;
    uint32_t thread;
    uint32_t group;
    void* to;
    const void* from;
    size_t bytes;
    std::function<void()> done;
    std::vector<char> data;
  };

  static void enter();
  void leave(State state) {
    Thread& thread = threads_[running_];
    thread.state = state;
    switch_to(thread.context, scheduler_);
  }
  bool advance(uint32_t warp);
  bool end_meeting(uint32_t warp);
  bool end_cta_meeting();
  bool advance_engine();
  bool has_groups(uint32_t thread, uint32_t pending, bool stored) const;

  const LaunchShape shape_;
  const std::function<void()>& kernel_;
  Random random_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::deque<Work> work_;
  Context scheduler_;
  uint32_t running_ = 0;
  uint32_t done_ = 0;
};

thread_local Cta* t_cta = nullptr;
std::function<uint32_t(const uint32_t*, uint32_t)> g_change;  // set before CTAs run

void Cta::enter() {
  Cta& cta = *t_cta;
  end_first_switch(cta.scheduler_);
  cta.kernel_();
  Thread& thread = cta.threads_[cta.running_];
  thread.state = State::kDone;
  ++cta.warps_[cta.running_ / kWarp].done;
  ++cta.done_;
  switch_to(thread.context, cta.scheduler_);
}

void Cta::run() {
  t_cta = this;
  blockIdx = {shape_.cta, shape_.row};
  gridDim.x = shape_.cta_count;
  blockDim.x = shape_.threads;
  const auto warps = static_cast<uint32_t>(warps_.size());
  while (done_ < threads_.size()) {
    bool moved = advance_engine();
    const uint32_t first = random_.below(warps);
    for (uint32_t w = 0; w < warps; ++w) moved = advance((first + w) % warps) || moved;
    moved = end_cta_meeting() || moved;
    if (!moved) fail("all threads wait for each other", shape_.cta, 0);
    if (random_.below(8) == 0) std::this_thread::yield();  // to other CTAs
  }
  while (!work_.empty()) advance_engine();
  t_cta = nullptr;
}

/// Runs each thread that can run, until it meets other threads or yields.
bool Cta::advance(uint32_t warp) {
  bool moved = false;
  for (uint32_t t = warp * kWarp; t < (warp + 1) * kWarp; ++t) {
    Thread& thread = threads_[t];
    if (thread.state == State::kWaits && (*thread.condition)()) thread.state = State::kReady;
    if (thread.state != State::kReady) continue;
    running_ = t;
    threadIdx.x = t;
    switch_to(scheduler_, threads_[t].context);
    moved = true;
  }
  return end_meeting(warp) || moved;
}

bool Cta::end_meeting(uint32_t warp) {
  const uint32_t first = warp * kWarp;
  uint32_t here = 0;
  Met met{0, threads_[first].value};
  for (uint32_t t = first; t < first + kWarp; ++t) {
    const Thread& thread = threads_[t];
    if (thread.state != State::kAtWarp) continue;
    met.most = std::max(met.most, thread.value);
    if (thread.value != 0) met.votes |= 1u << (t - first);
    ++here;
  }
  if (here > 0 && warps_[warp].done > 0) fail("its warp meets without threads that have ended", shape_.cta, first);
  if (here < kWarp) return false;
  for (uint32_t t = first; t < first + kWarp; ++t) {
    if (threads_[t].meeting != threads_[first].meeting) fail("meets its warp elsewhere than the rest", shape_.cta, t);
  }
  for (uint32_t t = first; t < first + kWarp; ++t) {
    threads_[t].met = met;
    threads_[t].state = State::kReady;
  }
  return true;
}

bool Cta::end_cta_meeting() {
  uint32_t here = 0;
  uint32_t votes = 0;
  const Thread* first = nullptr;
  for (const Thread& thread : threads_) {
    if (thread.state != State::kAtCta) continue;
    if (first == nullptr) first = &thread;
    votes += thread.value != 0 ? 1 : 0;
    ++here;
  }
  if (here == 0 || here + done_ < threads_.size()) return false;
  for (Thread& thread : threads_) {
    if (thread.state != State::kAtCta) continue;
    if (thread.meeting != first->meeting) {
      fail("meets its CTA elsewhere than the rest", shape_.cta, static_cast<uint32_t>(&thread - threads_.data()));
    }
    thread.met.votes = votes;
    thread.state = State::kReady;
  }
  return true;
}

/// Any piece of work may be next; a store is read first, and written some other time.
bool Cta::advance_engine() {
  if (work_.empty()) return false;
  for (uint32_t rounds = random_.below(4); rounds > 0 && !work_.empty(); --rounds) {
    const auto at = work_.begin() + random_.below(static_cast<uint32_t>(work_.size()));
    if (at->kind == Work::kRead) {
      const auto* const from = static_cast<const char*>(at->from);
      at->data.assign(from, from + at->bytes);
      at->kind = Work::kWrite;
      continue;
    }
    Work work = std::move(*at);
    work_.erase(at);
    std::memcpy(work.to, work.kind == Work::kLoad ? work.from : work.data.data(), work.bytes);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (work.done) work.done();
  }
  return true;
}

bool Cta::has_groups(uint32_t thread, uint32_t pending, bool stored) const {
  for (const Work& work : work_) {
    if (work.thread != thread || work.kind == Work::kLoad || work.group + pending >= threads_[thread].groups) continue;
    if (work.kind == Work::kRead || stored) return true;
  }
  return false;
}

}  // namespace

void run_cta(const LaunchShape& shape, const std::function<void()>& kernel) {
  Cta(shape, kernel).run();
}

void change_stores(std::function<uint32_t(const uint32_t*, uint32_t)> change) {
  g_change = std::move(change);
}
uint32_t number_to_store(const uint32_t* word, uint32_t number) {
  return g_change ? g_change(word, number) : number;
}

void yield() {
  t_cta->yield();
}
void wait_for(const std::function<bool()>& condition) {
  t_cta->wait_for(condition);
}
bool meet_cta(Meeting kind, bool vote) {
  return t_cta->meet_cta(kind, vote);
}
Met meet_warp(Meeting kind, int32_t value) {
  return t_cta->meet_warp(kind, value);
}
uint32_t dynamic_shared_bytes() {
  return t_cta->shape().dynamic_shared_bytes;
}
void copy_later(void* to, const void* from, size_t bytes, std::function<void()> done) {
  t_cta->copy_later(to, from, bytes, std::move(done));
}
void store_later(void* to, const void* from, size_t bytes) {
  t_cta->store_later(to, from, bytes);
}
void end_store_group() {
  t_cta->end_store_group();
}
void wait_groups(uint32_t pending, bool stored) {
  t_cta->wait_groups(pending, stored);
}

}  // namespace tutti::emulator
