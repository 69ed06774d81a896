// SPDX-License-Identifier: Apache-2.0
#include "launcher/meeting.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/socket.h"
#include "bootstrap/endpoint.h"
#include "launcher/pmix.h"
#include "log/log.h"

namespace tutti::launcher {
namespace {

constexpr uint32_t kFirstSlurmPort = 20'000;  // below the ports that Linux gives to clients (32768)
constexpr uint32_t kSlurmPorts = 12'000;

std::string text_of(const Variables& variables, const char* name) {
  const char* const text = variables(name);
  return text == nullptr ? std::string() : std::string(text);
}

/// An IPv6 address gets brackets.
std::string join(const std::string& host, uint32_t port) {
  const bool bare = host.find(':') != std::string::npos && !host.starts_with('[');
  return bare ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<std::string> address_of_slurm(const Variables& variables, const std::string& hosts) {
  TUTTI_ASSIGN(const uint32_t job, number_of(variables, "SLURM_JOB_ID", UINT32_MAX, "0..4294967295"));
  TUTTI_ASSIGN(const uint32_t step, number_of(variables, "SLURM_STEP_ID", UINT32_MAX, "0..4294967295"));
  return join(first_host(hosts), kFirstSlurmPort + (job * 31 + step) % kSlurmPorts);
}

/// The secret, if it has the form of one; else the failure names `variable`, and not the secret.
Result<std::string> checked(std::string secret, std::string_view variable) {
  const auto parsed = bootstrap::parse_secret(secret);
  if (!parsed.ok()) return parsed.status().with_context(variable);
  return secret;
}

Result<std::string> secret_of_file(const char* file) {
  auto secret = base::read_secret(file);
  if (!secret.ok()) return secret.status().with_context("TUTTI_ID_SECRET_FILE");
  return checked(*std::move(secret), fmt::format("TUTTI_ID_SECRET_FILE={}", file));
}

/// The variables that state the meeting place, for texts. Without TUTTI_MEETING, the port is computed.
std::string source_of_meeting(const Variables& variables) {
  for (const char* name : {"TUTTI_MEETING", "MASTER_ADDR"}) {
    if (const std::string text = text_of(variables, name); !text.empty()) return fmt::format("{}={}", name, text);
  }
  return fmt::format("SLURM_STEP_NODELIST={}", text_of(variables, "SLURM_STEP_NODELIST"));
}

/// The address with a number in place of a name. While the name is unknown, asks again: a cluster may learn the names
/// of its hosts while they start.
Result<base::SocketAddress> resolve(const std::string& address, base::Time deadline) {
  constexpr std::chrono::milliseconds kPause{200};
  while (true) {
    auto resolved = base::SocketAddress::parse(address, deadline);
    const bool is_unknown_name = !resolved.ok() && resolved.status().code() == Code::kNotFound;
    if (!is_unknown_name || base::Clock::now() + kPause >= deadline) return resolved;
    std::this_thread::sleep_for(kPause);
  }
}

Result<UniqueId> meet_at(const std::string& address, int rank, base::Time deadline) {
  if (address.ends_with(":0")) return Status(Code::kInvalidArgument, "all ranks need the same port; give a number");
  TUTTI_ASSIGN(const base::SocketAddress place, resolve(address, deadline));
  TUTTI_ASSIGN(const std::string secret, secret_of_environment("the meeting place " + address));
  if (rank != 0) return UniqueId::from_string(fmt::format("{}:{}", place.to_string(), secret));
  auto id = UniqueId::create_at(place.to_string(), secret);
  if (id.ok() || id.status().text().find(base::kPortInUse) == std::string_view::npos) return id;
  return Status(id.status().code(), fmt::format("{}; or two processes have rank 0: give each process a rank of its own",
                                                id.status().text()));
}

}  // namespace

std::string first_host(std::string_view list) {
  const size_t open = list.find('[');
  const size_t comma = list.find(',');
  if (comma < open) return std::string(list.substr(0, comma));
  if (open == std::string_view::npos) return std::string(list);
  const std::string_view numbers = list.substr(open + 1);
  const std::string_view first = numbers.substr(0, numbers.find_first_of(",-]"));
  const size_t close = list.find(']', open);
  const std::string_view rest = close == std::string_view::npos ? std::string_view() : list.substr(close + 1);
  return fmt::format("{}{}{}", list.substr(0, open), first, rest.substr(0, rest.find(',')));
}

Result<std::string> meeting_address(const RankAssignment& assignment, const Variables& variables) {
  const std::string given = text_of(variables, "TUTTI_MEETING");
  if (!given.empty()) return given;
  const std::string master = text_of(variables, "MASTER_ADDR");
  if (!master.empty() && !text_of(variables, "MASTER_PORT").empty()) {
    TUTTI_ASSIGN(const uint32_t number, number_of(variables, "MASTER_PORT", 65'534, "0..65534"));
    return join(master, number + 1);
  }
  const std::string hosts = text_of(variables, "SLURM_STEP_NODELIST");
  if (!hosts.empty()) return address_of_slurm(variables, hosts);
  return Status(Code::kUnsupported,
                fmt::format("{} started this process and states no place where its ranks can meet; set "
                            "TUTTI_MEETING=HOST_OF_RANK_0:PORT, or MASTER_ADDR and MASTER_PORT, for all ranks",
                            assignment.launcher));
}

Result<std::string> secret_of_environment(std::string_view address_of) {
  const char* const file = secure_getenv("TUTTI_ID_SECRET_FILE");
  const char* const text = secure_getenv("TUTTI_ID_SECRET");
  if (file != nullptr) {
    TUTTI_ASSIGN(std::string secret, secret_of_file(file));
    if (text == nullptr || *text == '\0') return secret;
    TUTTI_ASSIGN(const std::string other, checked(text, "TUTTI_ID_SECRET"));
    if (bootstrap::parse_secret(secret).value() == bootstrap::parse_secret(other).value()) return secret;
    return Status(
        Code::kInvalidArgument,
        fmt::format("TUTTI_ID_SECRET_FILE={} and TUTTI_ID_SECRET state different secrets; unset one of them", file));
  }
  if (text != nullptr) return checked(text, "TUTTI_ID_SECRET");
  static std::once_flag once;
  std::call_once(once, [&] {
    log::warn(
        "{} has no secret: every process that reaches its port can join the job; give all ranks the same "
        "TUTTI_ID_SECRET_FILE or TUTTI_ID_SECRET (32 hexadecimal digits)",
        address_of);
  });
  return std::string(32, '0');
}

Result<UniqueId> meet(const RankAssignment& assignment, const Variables& variables, const config::Config& config) {
  const bool at_address = !text_of(variables, "TUTTI_MEETING").empty();
  if (!at_address && variables("PMIX_NAMESPACE") != nullptr) {
    return meet_by_pmix(assignment, config.joined("bootstrap.interface"),
                        std::chrono::duration_cast<base::Milliseconds>(config.duration("timeouts.bootstrap")));
  }
  TUTTI_ASSIGN(const std::string address, meeting_address(assignment, variables));
  auto id = meet_at(address, assignment.rank, base::time_in(config.duration("timeouts.bootstrap")));
  return id.ok() ? std::move(id) : Result<UniqueId>(id.status().with_context(source_of_meeting(variables)));
}

}  // namespace tutti::launcher
