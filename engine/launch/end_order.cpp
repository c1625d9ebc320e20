#include "engine/launch/end_order.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "engine/core/error.h"

namespace lockstep::launch {

EndOrder::EndOrder() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  require(epoll_.is_open(), ErrorCode::Io, "run", "cannot watch the ranks: {}",
          std::strerror(errno));
}

void EndOrder::start_over(std::size_t num_workers) {
  processes_.clear();
  numbers_.assign(num_workers, kNotEnded);
  num_ended_ = 0;
}

void EndOrder::watch(std::size_t worker, pid_t process, int error_stream) {
  epoll_event event{};
  event.data.u64 = worker;
  event.events = EPOLLET;  // reports EPOLLHUP alone, once
  ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, error_stream, &event);
  // Kernels before 5.3 have none; then stderr alone tells.
  const auto pidfd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (pidfd < 0) return;
  processes_.emplace_back(pidfd);
  event.events = EPOLLIN | EPOLLET;
  ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, pidfd, &event);
}

void EndOrder::update() {
  std::array<epoll_event, 64> events;
  for (int count = 0;
       (count = ::epoll_wait(epoll_.descriptor(), events.data(), events.size(), 0)) > 0;) {
    for (int i = 0; i < count; ++i) note_end(events[static_cast<std::size_t>(i)].data.u64);
  }
}

void EndOrder::note_end(std::size_t worker) {
  if (numbers_[worker] == kNotEnded) numbers_[worker] = num_ended_++;
}

}  // namespace lockstep::launch
