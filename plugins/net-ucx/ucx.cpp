// SPDX-License-Identifier: Apache-2.0
#include "ucx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <utility>

#include "descriptors.h"

namespace tutti::net_ucx {
namespace {

constinit thread_local ThreadLog log_of_thread{};

int level_of(ucs_log_level_t level) {
  if (level == UCS_LOG_LEVEL_FATAL) return TUTTI_LOG_ERROR;
  // UCX's errors are failures of single calls, which the plugin reports where they matter.
  return level <= UCS_LOG_LEVEL_INFO ? TUTTI_LOG_INFO : TUTTI_LOG_DEBUG;
}

// The declaration is UCX's; `format` is a format of printf.
__attribute__((format(printf, 6, 0))) ucs_log_func_rc_t take_log(const char* /*file*/, unsigned /*line*/,
                                                                 const char* /*function*/, ucs_log_level_t level,
                                                                 const ucs_log_component_config_t* component,
                                                                 const char* format, va_list arguments) {
  // UCX hands on lines below the level of UCX_LOG_LEVEL, too.
  ThreadLog& here = log_of_thread;
  if (here.host == nullptr) return UCS_LOG_FUNC_RC_CONTINUE;
  if (component != nullptr && level > component->log_level) return UCS_LOG_FUNC_RC_STOP;
  std::array<char, sizeof here.error> text{};
  va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(text.data(), text.size(), format, copy);
  va_end(copy);
  if (level <= UCS_LOG_LEVEL_ERROR) here.error = text;
  here.host->log(level_of(level), std::string("UCX: ") + text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const { ucp.config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigRelease>;

/// Sets an option of UCX, unless the user's environment has it. The meaning of `what` is for messages.
Status set_unless_given(ucp_config_t* config, const char* name, const std::string& value, const char* what) {
  if (std::getenv((std::string("UCX_") + name).c_str()) != nullptr) return {};
  const ucs_status_t status = ucp.config_modify(config, name, value.c_str());
  if (status == UCS_OK) return {};
  return {Code::kConfig,
          fmt::format("UCX does not take '{}' as {} (UCX_{}): {}", value, what, name, reason_of(status))};
}

/// A setting wins over the environment.
Status set(ucp_config_t* config, const char* name, const std::vector<std::string>& values, const char* setting) {
  if (values.empty()) return {};
  const std::string list = fmt::format("{}", fmt::join(values, ","));
  const ucs_status_t status = ucp.config_modify(config, name, list.c_str());
  if (status == UCS_OK) return {};
  return {Code::kConfig,
          fmt::format("settings.net.ucx.{} is [{}], which UCX does not take: {}", setting, list, reason_of(status))};
}

bool is_device(const std::string& name) {
  std::error_code error;
  return if_nametoindex(name.c_str()) != 0 || std::filesystem::exists("/sys/class/infiniband/" + name, error);
}

std::string known_devices() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex, decltype(&if_freenameindex)> interfaces(if_nameindex(), if_freenameindex);
  for (const auto* one = interfaces.get(); one != nullptr && one->if_index != 0; ++one)
    names.emplace_back(one->if_name);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error))
    names.push_back(entry.path().filename());
  return fmt::format("{}", fmt::join(names, ", "));
}

/// UCX starts without devices that it does not find. Names are checked as far as they are plain: "eth0", "mlx5_0:1".
Status check_devices(const std::string& list, const char* origin) {
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    const std::string name = item.substr(0, item.find(':'));
    const bool plain = name.find_first_of("*?[]^!\"' ") == std::string::npos;
    if (!plain || name.empty() || name == "all" || is_device(name)) continue;
    return {Code::kConfig, fmt::format("{} names the device '{}', which is not on this host; there are {}", origin,
                                       name, known_devices())};
  }
  return {};
}

Status check_devices(const UcxSettings& settings) {
  if (!settings.devices.empty())
    return check_devices(fmt::format("{}", fmt::join(settings.devices, ",")), "settings.net.ucx.devices");
  const char* const given = std::getenv("UCX_NET_DEVICES");
  return given == nullptr ? Status() : check_devices(given, "UCX_NET_DEVICES");
}

Result<Config> configure(const UcxSettings& settings) {
  TUTTI_TRY(check_devices(settings));
  ucp_config_t* read = nullptr;
  if (const ucs_status_t status = ucp.config_read(nullptr, nullptr, &read); status != UCS_OK) {
    return Status(Code::kConfig,
                  fmt::format("UCX cannot read its configuration: {}; check the variables UCX_*", reason_of(status)));
  }
  Config config(read);
  TUTTI_TRY(set(config.get(), "TLS", settings.transports, "transports"));
  TUTTI_TRY(set(config.get(), "NET_DEVICES", settings.devices, "devices"));
  // Connecting must not block. A cut that is shorter than the grace must not end a connection: TCP sends three probes.
  TUTTI_TRY(set_unless_given(config.get(), "TCP_CONN_NB", "y", "non-blocking connects"));
  const int64_t interval_ms = std::max<int64_t>(1000, (2 * settings.grace.count() + 1000) / 3);
  TUTTI_TRY(set_unless_given(config.get(), "TCP_KEEPINTVL", fmt::format("{}ms", interval_ms), "interval of probes"));
  return config;
}

/// The text that `print` writes to a stream. UCX 1.13 tells lanes and resources only as lines of text.
template <class Print>
std::string printed(Print&& print) {
  char* raw = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&raw, &bytes);
  if (stream == nullptr) return {};
  print(stream);
  std::fclose(stream);
  const std::unique_ptr<char, decltype(&std::free)> text(raw, std::free);
  return {raw, bytes};
}

/// Whether TCP carries all messages. "resource 0 : md 0 dev 0 flags -- tcp/eth0" is a resource of UCX. Endpoints ask
/// for reports of failures, which shared memory of UCX 1.13 does not give; so there, UCX takes TCP instead.
bool is_tcp_alone(ucp_context_h context) {
  const bool ignores_memory = ucx_version() <= (1U << 16 | 13U);
  std::istringstream words(printed([&](FILE* stream) { ucp.context_print_info(context, stream); }));
  bool has_tcp = false;
  for (std::string word; words >> word;) {
    if (word != "--" || !(words >> word)) continue;
    has_tcp = has_tcp || word.starts_with("tcp/");
    const bool is_memory = word.ends_with("/memory") && ignores_memory;
    if (!word.starts_with("tcp/") && !word.starts_with("self/") && !is_memory) return false;
  }
  return has_tcp;
}

}  // namespace

ThreadLog& thread_log() {
  return log_of_thread;
}

void LogOfUcx::install() {
  static const bool pushed = [] { return ucp.log_push_handler(take_log), true; }();
  static_cast<void>(pushed);
}

uint32_t ucx_version() {
  unsigned major = 0, minor = 0, release = 0;
  ucp.get_version(&major, &minor, &release);
  return major << 16 | minor;
}

std::string reason_of(ucs_status_t status) {
  const std::string said = LogOfUcx::last_error();
  const char* const meaning = ucp.status_string(status);
  return said.empty() ? meaning : fmt::format("{} ({})", meaning, said);
}

/// "lane[0]:  1:tcp/eth0.0 md[0] -> ..." is a lane.
std::string ways_of(ucp_ep_h endpoint) {
  std::istringstream words(printed([&](FILE* stream) { ucp.ep_print_info(endpoint, stream); }));
  std::vector<std::string> ways;
  for (std::string word; words >> word;) {
    if (!word.starts_with("lane[") || !(words >> word)) continue;
    const size_t colon = word.find(':');
    const size_t dot = word.rfind('.');
    if (colon == std::string::npos || dot == std::string::npos || dot < colon) continue;
    std::string way = word.substr(colon + 1, dot - colon - 1);
    if (way.find('/') == std::string::npos || std::find(ways.begin(), ways.end(), way) != ways.end()) continue;
    ways.push_back(std::move(way));
  }
  return fmt::format("{}", fmt::join(ways, ", "));
}

Result<std::unique_ptr<Ucx>> Ucx::create(const UcxSettings& settings) {
  TUTTI_TRY(require_descriptors(kContextDescriptors, "a context"));
  TUTTI_ASSIGN(const Config config, configure(settings));
  std::unique_ptr<Ucx> ucx(new Ucx);
  TUTTI_TRY(ucx->open(config.get()));
  return ucx;
}

Status Ucx::start(ucp_config_t* config) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.name = "tutti";
  const ucs_status_t status = ucp.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  if (status == UCS_OK) return {};
  return {Code::kConfig, fmt::format("UCX cannot start: {}; check settings.net.ucx.transports, "
                                     "settings.net.ucx.devices, the variables UCX_* and the limit of open files "
                                     "(ulimit -n)",
                                     reason_of(status))};
}

/// Over TCP alone, long messages are sent eagerly. Their rendezvous would need an endpoint of the receiver to the
/// sender, which UCX never closes. If the sender goes while the receiver makes this endpoint, UCX 1.13 ends the
/// receiver's process: "Assertion `(req->send.wireup.type == ...' failed: ... got REP message" in ucp_request.c.
Status Ucx::open(ucp_config_t* config) {
  TUTTI_TRY(start(config));
  if (is_tcp_alone(context_)) {
    TUTTI_TRY(set_unless_given(config, "RNDV_THRESH", "inf", "length from which messages need a rendezvous"));
    ucp.cleanup(std::exchange(context_, nullptr));
    TUTTI_TRY(start(config));
  }
  TUTTI_TRY(make_worker());
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (const ucs_status_t status = ucp.worker_get_address(worker_, &address, &bytes); status != UCS_OK)
    return {Code::kSystem, fmt::format("UCX does not tell its address: {}", reason_of(status))};
  const auto all = std::as_bytes(std::span(reinterpret_cast<const char*>(address), bytes));
  address_.assign(all.begin(), all.end());
  ucp.worker_release_address(worker_, address);
  return {};
}

Status Ucx::make_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  const ucs_status_t status = ucp.worker_create(context_, &params, &worker_);
  if (status == UCS_OK) return {};
  worker_ = nullptr;
  return {Code::kSystem, fmt::format("UCX cannot make a worker: {}; check the limits of open files (ulimit -n) and of "
                                     "shared memory",
                                     reason_of(status))};
}

Ucx::~Ucx() {
  if (abandoned_) return;
  if (worker_ != nullptr) ucp.worker_destroy(worker_);
  if (context_ != nullptr) ucp.cleanup(context_);
}

void Ucx::progress() {
  ++rounds_;
  if (!abandoned_) ucp.worker_progress(worker_);
}

Result<bool> Ucx::arm() {
  if (abandoned_) return true;
  const ucs_status_t status = ucp.worker_arm(worker_);
  if (status == UCS_OK || status == UCS_ERR_BUSY) return status == UCS_OK;
  return Status(Code::kSystem, fmt::format("UCX cannot arm its events: {}", reason_of(status)));
}

Result<int> Ucx::descriptor() const {
  int fd = -1;
  const ucs_status_t status = ucp.worker_get_efd(worker_, &fd);
  if (status == UCS_OK) return fd;
  return Status(Code::kSystem, fmt::format("UCX does not tell the descriptor of its events: {}", reason_of(status)));
}

bool Ucx::drain(std::chrono::steady_clock::time_point deadline) {
  if (abandoned_) return false;
  const ucp_request_param_t param{};
  const ucs_status_ptr_t flush = ucp.worker_flush_nbx(worker_, &param);
  if (!UCS_PTR_IS_PTR(flush)) return true;
  while (ucp.request_check_status(flush) == UCS_INPROGRESS && std::chrono::steady_clock::now() < deadline) progress();
  const bool done = ucp.request_check_status(flush) != UCS_INPROGRESS;
  ucp.request_free(flush);
  return done;
}

void Ucx::abandon() {
  abandoned_ = true;
}

}  // namespace tutti::net_ucx
