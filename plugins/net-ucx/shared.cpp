// SPDX-License-Identifier: Apache-2.0
#include "shared.h"

#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace tutti::net_ucx {
namespace {

constexpr long kTrialInterval_ns = 1'000'000;
constexpr std::chrono::milliseconds kLookInterval{1};  // while the thread is too busy to ask for events

}  // namespace

Result<std::unique_ptr<Shared>> Shared::create(const sdk::Host& host, const UcxSettings& settings,
                                               SocketAddress interface_address) {
  std::unique_ptr<Shared> shared(new Shared(host, interface_address, settings.grace));
  TUTTI_TRY(load_ucx());
  LogOfUcx::install();
  const LogOfUcx log(shared->host);
  TUTTI_ASSIGN(shared->ucx, Ucx::create(settings));
  shared->endpoints.emplace(*shared->ucx);
  struct stat space {};
  if (stat("/proc/thread-self/ns/net", &space) == 0) shared->namespace_id = space.st_ino;
  shared->events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  shared->lines_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  shared->timer_ = Fd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  for (const Fd* const fd : {&shared->events_, &shared->lines_, &shared->timer_})
    if (!fd->valid()) return system_error("cannot make the descriptors that tell events", errno);
  TUTTI_ASSIGN(const int of_worker, shared->ucx->descriptor());
  for (const int fd : {of_worker, shared->lines_.get(), shared->timer_.get()}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(shared->events_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return system_error("cannot watch UCX's events (epoll)", errno);
  }
  return shared;
}

Shared::~Shared() {
  if (ucx == nullptr) return;
  const LogOfUcx log(host);
  const auto end = Clock::now() + kCloseLimit;
  for (sweep(); !ending_.empty() && Clock::now() < end; sweep()) ucx->progress();
  // UCX ends the process if a worker ends with operations, also with operations of closed endpoints.
  if (!ending_.empty() || !ucx->drain(end)) ucx->abandon();
  ucx.reset();
}

Status Shared::watch(const Fd& fd, Stir& stir) const {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.ptr = &stir}};
  if (epoll_ctl(lines_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0) return {};
  if (errno == EEXIST && epoll_ctl(lines_.get(), EPOLL_CTL_MOD, fd.get(), &event) == 0) return {};
  return system_error("cannot watch a socket (epoll)", errno);
}

void Shared::forget(const Fd& fd) const {
  if (fd.valid()) epoll_ctl(lines_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
}

bool Shared::look() {
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(lines_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) static_cast<Stir*>(events[static_cast<size_t>(i)].data.ptr)->stirred = true;
  return count > 0;
}

void Shared::look_and_sweep() {
  if (const auto now = Clock::now(); now >= next_look_) {
    next_look_ = now + kLookInterval;
    look();
    sweep();
  }
}

Result<bool> Shared::arm() {
  if (look()) return true;
  const itimerspec once{.it_interval = {}, .it_value = {0, without_trial_ > 0 ? kTrialInterval_ns : 0}};
  timerfd_settime(timer_.get(), 0, &once, nullptr);  // also takes back that it has expired
  TUTTI_ASSIGN(const bool armed, ucx->arm());
  return !armed;
}

void Shared::leave_to_end(ucs_status_ptr_t operation) {
  if (UCS_PTR_IS_PTR(operation)) ending_.push_back(operation);
}

void Shared::sweep() {
  endpoints->sweep();
  for (const ucs_status_ptr_t operation : endpoints->take_endings()) leave_to_end(operation);
  std::erase_if(ending_, [](void* operation) {
    if (ucp.request_check_status(operation) == UCS_INPROGRESS) return false;
    ucp.request_free(operation);
    return true;
  });
}

}  // namespace tutti::net_ucx
