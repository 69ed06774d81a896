// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <fmt/format.h>

#include <cerrno>
#include <string>

namespace tutti::net_ib {
namespace {

struct Cause {
  Code code;
  std::string text;
};

Cause cause_of(const ibv_wc& completion, std::string_view peer, const Settings& settings) {
  switch (completion.status) {
    case IBV_WC_RETRY_EXC_ERR:
      return {Code::kRemote,
              fmt::format("{} at the other end acknowledged nothing for about {:.1f} s; its process has ended, or the "
                          "link is down: check cables, switch and host, or raise settings.net.ib.timeout",
                          peer, settings.give_up_s())};
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return {Code::kRemote,
              fmt::format("{} at the other end had no receive posted; it is a bug of this plugin", peer)};
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return {Code::kRemote, fmt::format("{} at the other end refused the data; its process closes the connection, or "
                                         "its memory is no longer registered",
                                         peer)};
    case IBV_WC_WR_FLUSH_ERR:
      return {Code::kRemote, "the queue pair went into the error state; the port went down, or the peer broke off"};
    case IBV_WC_LOC_QP_OP_ERR:
      return {Code::kRemote, "the device cannot send; is its network interface up?"};
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return {Code::kInternal, "the device may not use the memory of a request; it is no longer registered or mapped"};
    default:
      return {Code::kDevice, "the device reports an error; see the kernel log"};
  }
}

}  // namespace

Status failure_of(const ibv_wc& completion, const Port& port, std::string_view peer, const Settings& settings) {
  const Cause cause = cause_of(completion, peer, settings);
  const std::string fault = port.device->fault_of(port.number);
  return {cause.code, fmt::format("{}{}{} ({}, vendor code {:#x})", fault, fault.empty() ? "" : ": ", cause.text,
                                  ibv_wc_status_str(completion.status), completion.vendor_err)};
}

bool concerns_rail(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR ||
         status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_FATAL_ERR || status == IBV_WC_RESP_TIMEOUT_ERR;
}

Status end_of_exchange(int error, const Settings& settings) {
  if (error == ECONNRESET || error == EPIPE)
    return {Code::kRemote,
            fmt::format("{}; the process at the other end has ended: see the log of that rank", errno_text(error))};
  return {
      Code::kRemote,
      fmt::format("no sign of the other host for {} s ({}); check the link, or raise timeouts.peer_loss if it may be "
                  "down for longer",
                  static_cast<double>(settings.peer_loss.count()) / 1000, errno_text(error))};
}

}  // namespace tutti::net_ib
