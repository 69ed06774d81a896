// SPDX-License-Identifier: Apache-2.0
#include "launcher/pmix.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pmix.h>

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace tutti::launcher {
namespace {

constexpr char kKey[] = "tutti-id";

/// The functions of libpmix. The library stays open: its threads may run until the process ends.
struct Library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence_nb = nullptr;
  decltype(&PMIx_Get_nb) get_nb = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  static Result<Library> open();
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Result<Library> Library::open() {
  void* const library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Code::kNotFound, fmt::format("the launcher offers PMIx, and libpmix.so.2 does not load: {}; install "
                                               "it (Debian: libpmix2), or set TUTTI_MEETING=HOST_OF_RANK_0:PORT",
                                               dlerror()));
  }
  Library found;
  const bool all = find(library, "PMIx_Init", found.init) && find(library, "PMIx_Put", found.put) &&
                   find(library, "PMIx_Commit", found.commit) && find(library, "PMIx_Fence_nb", found.fence_nb) &&
                   find(library, "PMIx_Get_nb", found.get_nb) && find(library, "PMIx_Finalize", found.finalize) &&
                   find(library, "PMIx_Error_string", found.error_string);
  if (!all) return Status(Code::kNotFound, "libpmix.so.2 lacks a function of PMIx 3");
  return found;
}

/// An answer that PMIx gives on a thread of its own. Shared with that thread, because an answer may come too late.
class Answer {
 public:
  using Shared = std::shared_ptr<Answer>;

  /// The callbacks of PMIx. `holder` is a Shared on the heap.
  static void done(pmix_status_t code, void* holder) { value(code, nullptr, holder); }
  static void value(pmix_status_t code, pmix_value_t* value, void* holder) {
    const std::unique_ptr<Shared> held(static_cast<Shared*>(holder));
    Answer& answer = **held;
    const std::lock_guard lock(answer.mutex_);
    if (code == PMIX_SUCCESS && value != nullptr && value->type == PMIX_STRING) answer.text_ = value->data.string;
    answer.code_ = code;
    answer.changed_.notify_all();
  }

  /// The code of the answer; nothing: the deadline has passed.
  std::optional<pmix_status_t> wait(base::Time deadline) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [&] { return code_.has_value(); });
    return code_;
  }
  /// After wait() has returned PMIX_SUCCESS.
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<pmix_status_t> code_;
  std::string text_;
};

/// The connection of this process to its launcher.
class Session {
 public:
  /// Each later call of fence() and get() ends when the limit of the session has passed.
  static Result<std::unique_ptr<Session>> open(const Library& library, base::Milliseconds limit) {
    std::unique_ptr<Session> made(new Session(library, limit));
    TUTTI_TRY(made->check("PMIx_Init", library.init(&made->self_, nullptr, 0)));
    made->is_open_ = true;
    return made;
  }
  ~Session() {
    if (is_open_) library_.finalize(nullptr, 0);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Status put(std::string text) {
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = text.data();
    TUTTI_TRY(check("PMIx_Put", library_.put(PMIX_GLOBAL, kKey, &value)));
    return check("PMIx_Commit", library_.commit());
  }

  /// Returns when all ranks have called it. The texts that ranks have put before are then on every host.
  Status fence() {
    pmix_info_t collect{};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    pmix_proc_t all = self_;
    all.rank = PMIX_RANK_WILDCARD;
    return ask("PMIx_Fence",
               [&](void* holder) { return library_.fence_nb(&all, 1, &collect, 1, &Answer::done, holder); })
        .status();
  }

  /// The text that rank 0 put before the fence.
  Result<std::string> get() {
    pmix_proc_t first = self_;
    first.rank = 0;
    return ask("PMIx_Get",
               [&](void* holder) { return library_.get_nb(&first, kKey, nullptr, 0, &Answer::value, holder); });
  }

 private:
  Session(const Library& library, base::Milliseconds limit)
      : library_(library), limit_(limit), deadline_(base::time_in(limit)) {}

  /// `start` begins a call of PMIx that answers through the holder.
  template <class Start>
  Result<std::string> ask(const char* call, Start&& start) {
    const auto answer = std::make_shared<Answer>();
    auto holder = std::make_unique<Answer::Shared>(answer);
    TUTTI_TRY(check(call, start(holder.get())));
    holder.release();  // the callback deletes it
    const auto code = answer->wait(deadline_);
    if (!code) {
      return Status(Code::kTimeout,
                    fmt::format("{} of the launcher did not end within {} (timeouts.bootstrap); did all "
                                "ranks start?",
                                call, base::to_text(limit_)));
    }
    TUTTI_TRY(check(call, *code));
    return answer->text();
  }

  Status check(const char* call, pmix_status_t code) const {
    if (code == PMIX_SUCCESS) return {};
    return {Code::kSystem, fmt::format("{} of the launcher failed: {} ({})", call, library_.error_string(code), code)};
  }

  const Library& library_;
  const base::Milliseconds limit_;
  const base::Time deadline_;
  pmix_proc_t self_{};
  bool is_open_ = false;
};

}  // namespace

Result<UniqueId> meet_by_pmix(const RankAssignment& assignment, std::string_view interfaces, base::Milliseconds limit) {
  static const Result<Library> library = Library::open();
  if (!library.ok()) return library.status();
  TUTTI_ASSIGN(const std::unique_ptr<Session> session, Session::open(*library, limit));
  if (assignment.rank == 0) {
    TUTTI_ASSIGN(const UniqueId id, UniqueId::create(interfaces));
    TUTTI_TRY(session->put(id.to_string()));
    TUTTI_TRY(session->fence());
    return id;
  }
  TUTTI_TRY(session->fence());
  TUTTI_ASSIGN(const std::string text, session->get());
  return UniqueId::from_string(text);
}

}  // namespace tutti::launcher
