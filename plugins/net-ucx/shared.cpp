// SPDX-License-Identifier: Apache-2.0
#include "shared.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace tutti::net_ucx {
namespace {

constexpr long kFirstInterval_ns = 1'000'000;
constexpr std::chrono::milliseconds kLookInterval{1};  // while the thread is too busy to ask for events

}  // namespace

Result<std::unique_ptr<Shared>> Shared::create(const sdk::Host& host, const UcxSettings& settings, Place place) {
  std::unique_ptr<Shared> shared(new Shared(host, place, settings.grace));
  const LogOfUcx log(shared->host);
  TUTTI_ASSIGN(shared->ucx, Ucx::create(settings));
  shared->events_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  shared->lines_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  shared->timer_ = Fd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  std::vector<int> fds = shared->ucx->descriptors();
  fds.insert(fds.end(), {shared->lines_.get(), shared->timer_.get()});
  for (const int fd : fds) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(shared->events_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return system_error("cannot watch UCX's events (epoll); check the limit of open files", errno);
  }
  return shared;
}

Shared::~Shared() {
  const LogOfUcx log(host);
  const auto end = Clock::now() + kCloseLimit;
  for (sweep(); !ending_.empty() && Clock::now() < end; sweep()) ucx->progress();
  if (!ending_.empty()) ucx->abandon();  // UCX ends the process if a worker ends with operations
  ucx.reset();
}

Status Shared::watch(const Fd& fd, Stir& stir) const {
  epoll_event event{.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data = {.ptr = &stir}};
  if (epoll_ctl(lines_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0) return {};
  if (errno == EEXIST && epoll_ctl(lines_.get(), EPOLL_CTL_MOD, fd.get(), &event) == 0) return {};
  return system_error("cannot watch a socket (epoll)", errno);
}

bool Shared::look() {
  std::array<epoll_event, 64> events{};
  const int count = epoll_wait(lines_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) static_cast<Stir*>(events[static_cast<size_t>(i)].data.ptr)->stirred = true;
  return count > 0;
}

void Shared::advance(uint64_t& round) {
  ucx->progress(round);
  if (const auto now = Clock::now(); now >= next_look_) {
    next_look_ = now + kLookInterval;
    look();
    sweep();
  }
}

Result<bool> Shared::arm() {
  if (look()) return true;
  const itimerspec once{.it_interval = {}, .it_value = {0, without_first_ > 0 ? kFirstInterval_ns : 0}};
  timerfd_settime(timer_.get(), 0, &once, nullptr);  // also takes back that it has expired
  TUTTI_ASSIGN(const bool armed, ucx->arm());
  return !armed;
}

void Shared::leave_to_end(ucs_status_ptr_t operation) {
  if (UCS_PTR_IS_PTR(operation)) ending_.push_back(operation);
}

void Shared::sweep() {
  std::erase_if(ending_, [](void* operation) {
    if (ucp_request_check_status(operation) == UCS_INPROGRESS) return false;
    ucp_request_free(operation);
    return true;
  });
}

}  // namespace tutti::net_ucx
