// SPDX-License-Identifier: Apache-2.0
// Endpoints of UCX to the workers of peers. Both directions between two workers use the same sockets.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/status.h"
#include "ucx.h"

namespace tutti::net_ucx {

class Endpoints;

/// An endpoint, which sends the messages of at most one connection at a time.
class Endpoint {
 public:
  /// The connection whose messages the endpoint sends.
  class User {
   public:
    /// The endpoint has failed. Called within progress, maybe while no operation is under way.
    virtual void endpoint_failed(const std::string& why) = 0;

   protected:
    ~User() = default;
  };
  using Siblings = std::list<Endpoint>;

  Endpoint(Endpoints& all, Siblings& siblings) : all_(all), siblings_(siblings) {}
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  ucp_ep_h get() const { return endpoint_; }
  bool has_failed() const { return !failure_.empty(); }
  /// "UCX: Connection reset by remote peer"; empty: the endpoint has not failed.
  const std::string& failure() const { return failure_; }

 private:
  friend class Endpoints;

  ucs_status_t open(ucp_worker_h from, std::span<const std::byte> to, ucp_err_handling_mode_t mode);
  static void failed(void* endpoint, ucp_ep_h ucp, ucs_status_t status);

  Endpoints& all_;
  Siblings& siblings_;  // the endpoints to the same worker
  ucp_ep_h endpoint_ = nullptr;
  std::string failure_;
  bool in_use_ = false;
  User* user_ = nullptr;  // until the connection is closed
};

/// The endpoints of a context. UCX numbers the endpoints to a worker. It joins the k-th endpoint from here to there to
/// the k-th endpoint from there to here: both use the same sockets. UCX 1.13 keeps the sockets of a closed endpoint as
/// long as the peer's endpoint may send. So an endpoint stays open when its connection is closed, and carries the next
/// connection to the same worker. One thread at a time.
class Endpoints {
 public:
  explicit Endpoints(Ucx& ucx) : ucx_(ucx) {}

  /// An endpoint to the worker with this address, for one connection, until give_back() or end(). `same_namespace`: the
  /// worker is in this network namespace, or on a different machine. UCX's failure: there is no way to the worker.
  ucs_status_t take(std::span<const std::byte> worker, bool same_namespace, Endpoint::User& user, Endpoint*& endpoint);
  /// The connection of the endpoint has no operation any more.
  void give_back(Endpoint& endpoint);
  /// Ends an endpoint with all its operations, so that the peer's endpoint may fail. UCX cannot do that over shared
  /// memory: there the endpoint is only left unused.
  void end(Endpoint& endpoint);
  /// Ends the endpoints that have failed, apart from those of connections.
  void sweep();
  /// Takes the operations of UCX by which endpoints have ended; the caller completes them.
  std::vector<ucs_status_ptr_t> take_endings() { return std::exchange(endings_, {}); }

 private:
  friend class Endpoint;

  Ucx& ucx_;
  std::map<std::string, Endpoint::Siblings> of_worker_;  // by the worker's address
  std::vector<ucs_status_ptr_t> endings_;
  bool any_failed_ = false;  // since the last sweep
};

}  // namespace tutti::net_ucx
