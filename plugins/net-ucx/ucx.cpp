// SPDX-License-Identifier: Apache-2.0
#include "ucx.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ucs/debug/log_def.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tutti::net_ucx {
namespace {

constexpr uint64_t kRareRounds = 16;

thread_local const sdk::Host* log_host = nullptr;
thread_local std::string last_error_text;

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
  // UCX hands on what is below the level of UCX_LOG_LEVEL, too.
  if (log_host == nullptr) return UCS_LOG_FUNC_RC_CONTINUE;
  if (component != nullptr && level > component->log_level) return UCS_LOG_FUNC_RC_STOP;
  std::array<char, 512> text{};
  va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(text.data(), text.size(), format, copy);
  va_end(copy);
  if (level <= UCS_LOG_LEVEL_ERROR) last_error_text = text.data();
  log_host->log(level_of(level), std::string("UCX: ") + text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

struct ConfigRelease {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
using Config = std::unique_ptr<ucp_config_t, ConfigRelease>;

/// Sets an option of UCX, unless the user's environment has it. The meaning of `what` is for messages.
Status set_unless_given(ucp_config_t* config, const char* name, const std::string& value, const char* what) {
  if (std::getenv((std::string("UCX_") + name).c_str()) != nullptr) return {};
  const ucs_status_t status = ucp_config_modify(config, name, value.c_str());
  if (status == UCS_OK) return {};
  return {Code::kConfig,
          fmt::format("UCX does not take '{}' as {} (UCX_{}): {}", value, what, name, reason_of(status))};
}

/// A setting wins over the environment.
Status set(ucp_config_t* config, const char* name, const std::vector<std::string>& values, const char* setting) {
  if (values.empty()) return {};
  const std::string list = fmt::format("{}", fmt::join(values, ","));
  const ucs_status_t status = ucp_config_modify(config, name, list.c_str());
  if (status == UCS_OK) return {};
  return {Code::kConfig,
          fmt::format("settings.net.ucx.{} is [{}], which UCX does not take: {}", setting, list, reason_of(status))};
}

Result<Config> configure(const UcxSettings& settings) {
  ucp_config_t* read = nullptr;
  if (const ucs_status_t status = ucp_config_read(nullptr, nullptr, &read); status != UCS_OK) {
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

}  // namespace

LogOfUcx::LogOfUcx(const sdk::Host& host) : before_(std::exchange(log_host, &host)) {
  static const bool pushed = [] { return ucs_log_push_handler(take_log), true; }();
  static_cast<void>(pushed);
  if (before_ == nullptr) last_error_text.clear();
}

LogOfUcx::~LogOfUcx() {
  log_host = before_;
}

std::string LogOfUcx::last_error() {
  return last_error_text;
}

uint32_t ucx_version() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return major << 16 | minor;
}

std::string reason_of(ucs_status_t status) {
  const std::string said = LogOfUcx::last_error();
  const char* const meaning = ucs_status_string(status);
  return said.empty() ? meaning : fmt::format("{} ({})", meaning, said);
}

Result<std::unique_ptr<Ucx>> Ucx::create(const UcxSettings& settings) {
  TUTTI_ASSIGN(const Config config, configure(settings));
  std::unique_ptr<Ucx> ucx(new Ucx);
  TUTTI_TRY(ucx->open(config.get()));
  return ucx;
}

Status Ucx::open(ucp_config_t* config) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  params.name = "tutti";
  if (const ucs_status_t status = ucp_init(&params, config, &context_); status != UCS_OK) {
    return {Code::kConfig, fmt::format("UCX cannot start: {}; check settings.net.ucx.transports, "
                                       "settings.net.ucx.devices and the variables UCX_*",
                                       reason_of(status))};
  }
  TUTTI_ASSIGN(sends_, make_worker());
  TUTTI_ASSIGN(receives_, make_worker());
  ucp_address_t* address = nullptr;
  size_t bytes = 0;
  if (const ucs_status_t status = ucp_worker_get_address(receives_, &address, &bytes); status != UCS_OK)
    return {Code::kSystem, fmt::format("UCX does not tell its address: {}", reason_of(status))};
  const auto all = std::as_bytes(std::span(reinterpret_cast<const char*>(address), bytes));
  address_.assign(all.begin(), all.end());
  ucp_worker_release_address(receives_, address);
  return {};
}

Result<ucp_worker_h> Ucx::make_worker() const {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  ucp_worker_h worker = nullptr;
  const ucs_status_t status = ucp_worker_create(context_, &params, &worker);
  if (status == UCS_OK) return worker;
  return Status(Code::kSystem, fmt::format("UCX cannot make a worker: {}; check the limits of open files and of shared "
                                           "memory",
                                           reason_of(status)));
}

Ucx::~Ucx() {
  if (abandoned_) return;
  if (sends_ != nullptr) ucp_worker_destroy(sends_);
  if (receives_ != nullptr) ucp_worker_destroy(receives_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

void Ucx::progress(uint64_t& round) {
  if (round == rounds_) progress();
  round = rounds_;
}

void Ucx::progress() {
  ++rounds_;
  if (abandoned_) return;
  if (open_sends_ > 0 || rounds_ % kRareRounds == 0) ucp_worker_progress(sends_);
  ucp_worker_progress(receives_);
}

Result<bool> Ucx::arm() {
  if (abandoned_) return true;
  for (ucp_worker_h worker : {sends_, receives_}) {
    const ucs_status_t status = ucp_worker_arm(worker);
    if (status == UCS_ERR_BUSY) return false;
    if (status != UCS_OK) return Status(Code::kSystem, fmt::format("UCX cannot arm its events: {}", reason_of(status)));
  }
  return true;
}

std::vector<int> Ucx::descriptors() const {
  std::vector<int> found;
  for (ucp_worker_h worker : {sends_, receives_}) {
    int fd = -1;
    if (ucp_worker_get_efd(worker, &fd) == UCS_OK) found.push_back(fd);
  }
  return found;
}

void Ucx::abandon() {
  abandoned_ = true;
}

}  // namespace tutti::net_ucx
