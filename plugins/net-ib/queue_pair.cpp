// SPDX-License-Identifier: Apache-2.0
#include "queue_pair.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tutti::net_ib {
namespace {

constexpr uint8_t kHopLimit = 255;
constexpr uint8_t kForEver = 7;        // a receive is posted before it is announced, so its absence is never an error
constexpr uint8_t kReceiverWait = 12;  // 0.64 ms
constexpr uint8_t kReads = 1;          // outstanding reads, for flush

ibv_mtu smaller_mtu(uint8_t a, uint8_t b) {
  return static_cast<ibv_mtu>(std::min(a, b));
}

/// The route to the peer: with a global header on RoCE, and to other subnets of InfiniBand.
ibv_ah_attr route(const Port& port, const Settings& settings, const Endpoint& peer) {
  ibv_ah_attr out{};
  const bool other_subnet = std::memcmp(port.gid.ip.bytes.data(), peer.gid.data(), 8) != 0;
  out.is_global = !port.is_infiniband() || other_subnet ? 1 : 0;
  if (out.is_global != 0) {
    std::memcpy(out.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    out.grh.sgid_index = static_cast<uint8_t>(port.gid.index);
    out.grh.hop_limit = kHopLimit;
    out.grh.traffic_class = settings.traffic_class;
  }
  out.dlid = peer.lid;
  out.sl = settings.service_level;
  out.port_num = static_cast<uint8_t>(port.number);
  return out;
}

}  // namespace

Result<QueuePair> QueuePair::create(const Port& port, const Settings& settings, ibv_cq* queue, Depth depth) {
  QueuePair out;
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = queue;
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap.max_send_wr = depth.sends;
  wanted.cap.max_recv_wr = depth.receives;
  wanted.cap.max_send_sge = 1;
  wanted.cap.max_recv_sge = 1;
  int error = 0;
  for (uint32_t bytes = settings.inline_bytes;; bytes /= 2) {  // the limit of a device for `inline` is nowhere to read
    ibv_qp_init_attr attributes = wanted;
    attributes.cap.max_inline_data = bytes;
    out.pair_.reset(ibv_create_qp(port.device->domain(), &attributes));
    error = errno;
    out.inline_bytes_ = std::min(attributes.cap.max_inline_data, settings.inline_bytes);
    if (out.pair_ != nullptr || bytes == 0 || error != EINVAL) break;
  }
  if (out.pair_ == nullptr) {
    return system_error(
        fmt::format("cannot make a queue pair of {} sends and {} receives on {} (its limits: {} requests, "
                    "{} queue pairs); raise the limit of locked memory (ulimit -l), or use fewer "
                    "connections (settings.net.ib.queue_pairs, channels)",
                    depth.sends, depth.receives, port.name, port.device->attributes().max_qp_wr,
                    port.device->attributes().max_qp),
        error);
  }
  TUTTI_TRY(out.to_init(port, settings));
  return out;
}

Status QueuePair::to_init(const Port& port, const Settings& settings) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = settings.pkey_index;
  attributes.port_num = static_cast<uint8_t>(port.number);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error =
      ibv_modify_qp(pair_.get(), &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return {};
  return system_error(
      fmt::format("cannot prepare a queue pair on {} (settings.net.ib.pkey_index is {}, the port has {} "
                  "partition keys)",
                  port.name, settings.pkey_index, port.attributes.pkey_tbl_len),
      error);
}

Status QueuePair::to_receive(const Port& port, const Settings& settings, const Endpoint& peer, uint32_t number) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = smaller_mtu(static_cast<uint8_t>(port.attributes.active_mtu), peer.mtu);
  attributes.dest_qp_num = number;
  attributes.rq_psn = peer.psn;
  attributes.max_dest_rd_atomic = kReads;
  attributes.min_rnr_timer = kReceiverWait;
  attributes.ah_attr = route(port, settings, peer);
  const int error = ibv_modify_qp(pair_.get(), &attributes,
                                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) return {};
  Ip there;
  there.bytes = peer.gid;
  return system_error(fmt::format("cannot route a queue pair from {} at {} to {} at {}; does `ping` reach it, and have "
                                  "both ports the same kind of GID (settings.net.ib.roce, family, subnet)?",
                                  port.name, port.gid.to_string(), peer.device.data(), there.to_string()),
                      error);
}

Status QueuePair::to_send(const Settings& settings, uint32_t psn) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = settings.timeout;
  attributes.retry_cnt = settings.retry_count;
  attributes.rnr_retry = kForEver;
  attributes.sq_psn = psn;
  attributes.max_rd_atomic = kReads;
  const int error = ibv_modify_qp(
      pair_.get(), &attributes,
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  return error == 0 ? Status() : system_error("cannot let a queue pair send", error);
}

Status QueuePair::connect(const Port& port, const Settings& settings, const Endpoint& peer, uint32_t number,
                          uint32_t psn) {
  TUTTI_TRY(to_receive(port, settings, peer, number));
  return to_send(settings, psn);
}

/// A refusal says that the device has failed, and then it takes no packets, either.
void QueuePair::close() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
}

Status QueuePair::post_receives(uint64_t id, uint32_t count) {
  constexpr uint32_t kAtOnce = 32;
  while (count > 0) {
    const uint32_t now = std::min(count, kAtOnce);
    std::array<ibv_recv_wr, kAtOnce> requests{};
    for (uint32_t i = 0; i < now; ++i) {
      requests[i].wr_id = id;
      requests[i].next = i + 1 < now ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(pair_.get(), requests.data(), &refused); error != 0)
      return system_error("cannot post receives to a queue pair", error);
    count -= now;
  }
  return {};
}

Status QueuePair::post(ibv_send_wr& request) {
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(pair_.get(), &request, &refused);
  return error == 0 ? Status() : system_error("cannot post to a queue pair", error);
}

Status QueuePair::post_write(uint64_t id, const Local& from, uint64_t address, uint32_t key, uint32_t immediate) {
  ibv_sge piece{from.address, from.bytes, from.key};
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = from.bytes > 0 ? 1 : 0;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.send_flags = IBV_SEND_SIGNALED;
  if (from.bytes > 0 && from.bytes <= inline_bytes_ && !from.on_gpu) request.send_flags |= IBV_SEND_INLINE;
  request.imm_data = htonl(immediate);
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  return post(request);
}

Status QueuePair::post_read(uint64_t id, const Local& to, uint64_t address, uint32_t key) {
  ibv_sge piece{to.address, to.bytes, to.key};
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  return post(request);
}

}  // namespace tutti::net_ib
