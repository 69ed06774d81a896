// SPDX-License-Identifier: Apache-2.0
#include "endpoint.h"

#include <algorithm>

namespace tutti::net_ucx {

ucs_status_t Endpoint::open(ucp_worker_h from, std::span<const std::byte> to, ucp_err_handling_mode_t mode) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.address = reinterpret_cast<const ucp_address_t*>(to.data());
  params.err_handler = {.cb = failed, .arg = this};
  params.err_mode = mode;
  return ucp.ep_create(from, &params, &endpoint_);
}

/// Called within progress.
void Endpoint::failed(void* endpoint, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  auto& self = *static_cast<Endpoint*>(endpoint);
  self.failure_ = "UCX: " + reason_of(status);
  self.all_.any_failed_ = true;
  if (self.user_ != nullptr) self.user_->endpoint_failed(self.failure_);
}

/// The endpoint reports failures of the peer. UCX cannot do that over shared memory: there the line alone tells of
/// them. UCX wakes a process that waits for shared memory by a socket of its network namespace.
ucs_status_t Endpoints::take(std::span<const std::byte> worker, bool same_namespace, Endpoint::User& user,
                             Endpoint*& endpoint) {
  Endpoint::Siblings& siblings = of_worker_[{reinterpret_cast<const char*>(worker.data()), worker.size()}];
  const auto is_free = [](const Endpoint& one) { return !one.in_use_ && !one.has_failed(); };
  auto found = std::find_if(siblings.begin(), siblings.end(), is_free);
  if (found == siblings.end()) {
    found = siblings.emplace(siblings.end(), *this, siblings);
    ucs_status_t status = found->open(ucx_.worker(), worker, UCP_ERR_HANDLING_MODE_PEER);
    if (status != UCS_OK && same_namespace) status = found->open(ucx_.worker(), worker, UCP_ERR_HANDLING_MODE_NONE);
    if (status != UCS_OK) {
      siblings.erase(found);
      return status;
    }
  }
  found->in_use_ = true;
  found->user_ = &user;
  endpoint = &*found;
  return UCS_OK;
}

void Endpoints::give_back(Endpoint& endpoint) {
  endpoint.in_use_ = false;
  endpoint.user_ = nullptr;
  any_failed_ = any_failed_ || endpoint.has_failed();
}

void Endpoints::end(Endpoint& endpoint) {
  endpoint.user_ = nullptr;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t ending = ucp.ep_close_nbx(endpoint.endpoint_, &param);
  if (UCS_PTR_IS_ERR(ending)) {
    endpoint.failure_ = "it was ended";
    return;
  }
  endings_.push_back(ending);
  endpoint.siblings_.remove_if([&](const Endpoint& one) { return &one == &endpoint; });
}

void Endpoints::sweep() {
  if (!std::exchange(any_failed_, false)) return;
  for (auto& [worker, siblings] : of_worker_) {
    for (auto one = siblings.begin(); one != siblings.end();) {
      Endpoint& endpoint = *one++;
      if (!endpoint.in_use_ && endpoint.has_failed()) end(endpoint);
    }
  }
}

}  // namespace tutti::net_ucx
