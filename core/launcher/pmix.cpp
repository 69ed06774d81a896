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
                   find(library, "PMIx_Commit", found.commit) && find(library, "PMIx_Get_nb", found.get_nb) &&
                   find(library, "PMIx_Finalize", found.finalize) &&
                   find(library, "PMIx_Error_string", found.error_string);
  if (!all) return Status(Code::kNotFound, "libpmix.so.2 lacks a function of PMIx 3");
  return found;
}

/// The answer to a question that PMIx answers on a thread of its own. Shared with that thread: a late answer finds it.
struct Answer {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<pmix_status_t> code;
  std::string text;

  static void receive(pmix_status_t code, pmix_value_t* value, void* holder) {
    const std::unique_ptr<std::shared_ptr<Answer>> held(static_cast<std::shared_ptr<Answer>*>(holder));
    Answer& answer = **held;
    const std::lock_guard lock(answer.mutex);
    if (code == PMIX_SUCCESS && value != nullptr && value->type == PMIX_STRING) answer.text = value->data.string;
    answer.code = code;
    answer.changed.notify_all();
  }
};

/// The connection of this process to its launcher.
class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const Library& library) {
    std::unique_ptr<Session> made(new Session(library));
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

  /// The text that rank 0 has put, or will put.
  Result<std::string> get(base::Time deadline) {
    pmix_proc_t first = self_;
    first.rank = 0;
    const auto answer = std::make_shared<Answer>();
    auto holder = std::make_unique<std::shared_ptr<Answer>>(answer);
    TUTTI_TRY(check("PMIx_Get_nb", library_.get_nb(&first, kKey, nullptr, 0, &Answer::receive, holder.get())));
    holder.release();  // receive() deletes it
    std::unique_lock lock(answer->mutex);
    if (!answer->changed.wait_until(lock, deadline, [&] { return answer->code.has_value(); })) {
      return Status(Code::kTimeout, "rank 0 gave the launcher no id within timeouts.bootstrap; did it start?");
    }
    TUTTI_TRY(check("PMIx_Get", *answer->code));
    return answer->text;
  }

 private:
  explicit Session(const Library& library) : library_(library) {}

  Status check(const char* call, pmix_status_t code) const {
    if (code == PMIX_SUCCESS) return {};
    return {Code::kSystem, fmt::format("{} of the launcher failed: {} ({})", call, library_.error_string(code), code)};
  }

  const Library& library_;
  pmix_proc_t self_{};
  bool is_open_ = false;
};

}  // namespace

Result<UniqueId> meet_by_pmix(const Place& place, std::string_view interfaces, base::Time deadline) {
  static const Result<Library> library = Library::open();
  if (!library.ok()) return library.status();
  TUTTI_ASSIGN(const std::unique_ptr<Session> session, Session::open(*library));
  if (place.rank == 0) {
    TUTTI_ASSIGN(const UniqueId id, UniqueId::create(interfaces));
    TUTTI_TRY(session->put(id.to_string()));
    return id;
  }
  TUTTI_ASSIGN(const std::string text, session->get(deadline));
  return UniqueId::from_string(text);
}

}  // namespace tutti::launcher
