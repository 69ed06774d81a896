// SPDX-License-Identifier: Apache-2.0
#include "events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace tutti::net_ib {
namespace {

constexpr int kAtOnce = 64;

}  // namespace

Queue::~Queue() {
  events_.forget(*this);
}

Result<std::unique_ptr<Events>> Events::create(const sdk::Host& host) {
  std::unique_ptr<Events> events(new Events(host));
  events->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!events->epoll_.valid()) return system_error("cannot make an epoll descriptor");
  return events;
}

/// Descriptors of sources have a null pointer: all sources are drained when one of them has news.
Status Events::add(const std::shared_ptr<Device>& device) {
  const std::lock_guard lock(mutex_);
  const bool known =
      std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) { return source.device == device; });
  if (known) return {};
  CompletionChannel channel(ibv_create_comp_channel(device->context()));
  if (channel == nullptr) {
    return system_error(fmt::format("cannot make a completion channel on {}", device->name()));
  }
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  for (const int fd : {channel->fd, device->context()->async_fd}) {
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = nullptr}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return system_error("cannot watch a device (epoll)");
  }
  sources_.push_back({device, std::move(channel)});
  return {};
}

Result<std::unique_ptr<Queue>> Events::make_queue(const Device& device, uint32_t entries) {
  const std::lock_guard lock(mutex_);
  const auto source =
      std::find_if(sources_.begin(), sources_.end(), [&](const Source& one) { return one.device.get() == &device; });
  if (source == sources_.end()) return Status(Code::kInternal, "a queue for a device that is not watched");
  std::unique_ptr<Queue> queue(new Queue(*this));
  queue->queue_.reset(
      ibv_create_cq(device.context(), static_cast<int>(entries), queue.get(), source->channel.get(), 0));
  if (queue->queue_ == nullptr) {
    const int error = errno;
    return system_error(fmt::format("cannot make a completion queue of {} entries on {} (its limit is {})", entries,
                                    device.name(), device.attributes().max_cqe),
                        error);
  }
  quiet_.push_back(queue.get());
  return queue;
}

/// The queue is destroyed under the lock, so that no event of it is read later.
void Events::forget(Queue& queue) {
  const std::lock_guard lock(mutex_);
  std::erase(quiet_, &queue);
  queue.queue_.reset();
}

Status Events::watch(int fd, Stir& stir, bool once) {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.ptr = &stir}};
  if (once) event.events = EPOLLIN | EPOLLONESHOT;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  if (errno == EEXIST && epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0) return {};
  return system_error("cannot watch a socket (epoll)");
}

/// The lock: arm() may be about to report an event that it has read.
void Events::forget(const Fd& fd) {
  const std::lock_guard lock(mutex_);
  if (fd.valid()) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
}

void Events::drain(const Source& source) {
  source.device->read_events(host_);
  ibv_cq* queue = nullptr;
  void* owner = nullptr;
  while (ibv_get_cq_event(source.channel.get(), &queue, &owner) == 0) {
    quiet_.push_back(static_cast<Queue*>(owner));
    ibv_ack_cq_events(queue, 1);
  }
}

/// A queue that is armed again may have completions already, so this counts as work.
bool Events::arm() {
  const std::lock_guard lock(mutex_);
  std::array<epoll_event, kAtOnce> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), kAtOnce, 0);
  bool of_device = false;
  for (int i = 0; i < count; ++i) {
    auto* const stir = static_cast<Stir*>(events[static_cast<size_t>(i)].data.ptr);
    of_device = of_device || stir == nullptr;
    if (stir != nullptr) stir->stirred.store(true, std::memory_order_release);  // partner: Stir::take
  }
  if (of_device) {
    for (const Source& source : sources_) drain(source);
  }
  const bool work = count > 0 || !quiet_.empty();
  for (Queue* const queue : quiet_) ibv_req_notify_cq(queue->get(), 0);
  quiet_.clear();
  return work;
}

}  // namespace tutti::net_ib
