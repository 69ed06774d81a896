// SPDX-License-Identifier: Apache-2.0
// UCX's library, loaded when the first communicator needs it.
#pragma once

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include "tutti/status.h"

namespace tutti::net_ucx {

/// Functions of UCX that the plugin calls: `ucp.worker_progress` is ucp_worker_progress. Null before load_ucx().
struct Functions {
  decltype(&ucp_cleanup) cleanup;
  decltype(&ucp_config_modify) config_modify;
  decltype(&ucp_config_read) config_read;
  decltype(&ucp_config_release) config_release;
  decltype(&ucp_context_print_info) context_print_info;
  decltype(&ucp_ep_close_nbx) ep_close_nbx;
  decltype(&ucp_ep_create) ep_create;
  decltype(&ucp_ep_print_info) ep_print_info;
  decltype(&ucp_get_version) get_version;
  decltype(&ucp_init_version) init_version;
  decltype(&ucp_mem_map) mem_map;
  decltype(&ucp_mem_unmap) mem_unmap;
  decltype(&ucp_request_cancel) request_cancel;
  decltype(&ucp_request_check_status) request_check_status;
  decltype(&ucp_request_free) request_free;
  decltype(&ucp_tag_msg_recv_nbx) tag_msg_recv_nbx;
  decltype(&ucp_tag_probe_nb) tag_probe_nb;
  decltype(&ucp_tag_recv_nbx) tag_recv_nbx;
  decltype(&ucp_tag_send_nbx) tag_send_nbx;
  decltype(&ucp_worker_arm) worker_arm;
  decltype(&ucp_worker_create) worker_create;
  decltype(&ucp_worker_destroy) worker_destroy;
  decltype(&ucp_worker_flush_nbx) worker_flush_nbx;
  decltype(&ucp_worker_get_address) worker_get_address;
  decltype(&ucp_worker_get_efd) worker_get_efd;
  decltype(&ucp_worker_progress) worker_progress;
  decltype(&ucp_worker_release_address) worker_release_address;
  decltype(&ucs_log_push_handler) log_push_handler;
  decltype(&ucs_status_string) status_string;
};
extern Functions ucp;

/// Loads UCX once per process, so that it changes nothing of the process: neither code of libc nor signal handlers.
/// Any thread. kUnsupported if the library is missing or lacks a function.
Status load_ucx();

}  // namespace tutti::net_ucx
