// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <vector>

namespace tutti::net_ucx {
namespace {

constexpr const char* kFile = "libucp.so.0";

struct Variable {
  const char* name;
  const char* text;
};

/// UCX reads these variables while it is loaded.
/// Memory events: UCX 1.13.1 overwrites the first bytes of mmap(), brk() and six other functions, and moves the end of
/// the heap by a page and back. Other threads that call these functions or malloc() meanwhile crash.
/// Error signals: UCX takes over SIGSEGV and three other signals, which belong to the program.
constexpr std::array kQuiet = {Variable{"UCX_MEM_EVENTS", "UCX_MEM_EVENTS=n"},
                               Variable{"UCX_ERROR_SIGNALS", "UCX_ERROR_SIGNALS="}};

/// Loads the library with the variables in the environment. Variables that the user has set keep their values.
/// Other threads may read the environment meanwhile, and setenv() could free the list that these threads read. So
/// another list stands in for it, and is never freed. If a thread calls setenv() meanwhile, its copy of the list stays.
void* open_quietly() {
  static auto* const list = new std::vector<char*>;
  char** const before = environ;
  for (char** one = before; one != nullptr && *one != nullptr; ++one) list->push_back(*one);
  for (const Variable& variable : kQuiet) {
    if (std::getenv(variable.name) == nullptr) list->push_back(const_cast<char*>(variable.text));
  }
  list->push_back(nullptr);
  environ = list->data();
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (environ == list->data()) environ = before;
  return library;
}

/// The name of the first function that the library lacks; null: it has all.
const char* find_functions(void* library) {
  const char* missing = nullptr;
  const auto need = [&]<class Function>(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  need("ucp_cleanup", ucp.cleanup);
  need("ucp_config_modify", ucp.config_modify);
  need("ucp_config_read", ucp.config_read);
  need("ucp_config_release", ucp.config_release);
  need("ucp_context_print_info", ucp.context_print_info);
  need("ucp_ep_close_nbx", ucp.ep_close_nbx);
  need("ucp_ep_create", ucp.ep_create);
  need("ucp_ep_print_info", ucp.ep_print_info);
  need("ucp_get_version", ucp.get_version);
  need("ucp_init_version", ucp.init_version);
  need("ucp_mem_map", ucp.mem_map);
  need("ucp_mem_unmap", ucp.mem_unmap);
  need("ucp_request_cancel", ucp.request_cancel);
  need("ucp_request_check_status", ucp.request_check_status);
  need("ucp_request_free", ucp.request_free);
  need("ucp_tag_msg_recv_nbx", ucp.tag_msg_recv_nbx);
  need("ucp_tag_probe_nb", ucp.tag_probe_nb);
  need("ucp_tag_recv_nbx", ucp.tag_recv_nbx);
  need("ucp_tag_send_nbx", ucp.tag_send_nbx);
  need("ucp_worker_arm", ucp.worker_arm);
  need("ucp_worker_create", ucp.worker_create);
  need("ucp_worker_destroy", ucp.worker_destroy);
  need("ucp_worker_flush_nbx", ucp.worker_flush_nbx);
  need("ucp_worker_get_address", ucp.worker_get_address);
  need("ucp_worker_get_efd", ucp.worker_get_efd);
  need("ucp_worker_progress", ucp.worker_progress);
  need("ucp_worker_release_address", ucp.worker_release_address);
  need("ucs_log_push_handler", ucp.log_push_handler);
  need("ucs_status_string", ucp.status_string);
  return missing;
}

Status load() {
  void* const library = open_quietly();  // stays open: UCX cannot be unloaded
  if (library == nullptr) {
    return {Code::kUnsupported, fmt::format("{} does not load: {}; install UCX (Debian: libucx0) on this host, or let "
                                            "LD_LIBRARY_PATH name its folder",
                                            kFile, dlerror())};
  }
  if (const char* const missing = find_functions(library); missing != nullptr) {
    return {Code::kUnsupported, fmt::format("{} lacks the function {}; install UCX {}.{} or newer", kFile, missing,
                                            UCP_API_MAJOR, UCP_API_MINOR)};
  }
  return {};
}

}  // namespace

Functions ucp{};

Status load_ucx() {
  static const Status loaded = load();
  return loaded;
}

}  // namespace tutti::net_ucx
