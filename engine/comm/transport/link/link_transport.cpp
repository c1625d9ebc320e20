#include "engine/comm/transport/link/link_transport.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "engine/comm/absent_rank.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm {
namespace {

using Time = Port::Time;

// A sleeper looks this often whether the group has failed.
constexpr Time kLongestSleep = std::chrono::milliseconds(10);

Time now() {
  return std::chrono::duration_cast<Time>(runtime::Clock::now().time_since_epoch());
}

Time from_seconds(double seconds) {
  constexpr double kLongest = 1e9;  // 30 years; more than this does not fit into a Time
  return std::chrono::duration_cast<Time>(
      std::chrono::duration<double>(std::min(seconds, kLongest)));
}

// The kernel may let a thread sleep 50 us longer than asked unless told that it may not.
class ExactSleep {
 public:
  ExactSleep() : slack_(::prctl(PR_GET_TIMERSLACK)) { ::prctl(PR_SET_TIMERSLACK, 1UL); }
  ~ExactSleep() {
    if (slack_ > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_));
  }
  ExactSleep(const ExactSleep&) = delete;
  ExactSleep& operator=(const ExactSleep&) = delete;

  // steady_clock is CLOCK_MONOTONIC.
  static void until(Time moment) {
    constexpr auto kSecond = Time(std::chrono::seconds(1)).count();
    const timespec then{static_cast<time_t>(moment.count() / kSecond),
                        static_cast<long>(moment.count() % kSecond)};
    while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, nullptr) == EINTR) {
    }
  }

 private:
  int slack_;
};

}  // namespace

LinkTransport::LinkTransport(std::unique_ptr<Transport> inner, const LinkSpec& link)
    : stamps_(static_cast<std::size_t>(inner->world_size())),
      inner_(std::move(inner)),
      name_(fmt::format("{} behind a modelled link ({})", inner_->name(), to_string(link))),
      link_(link),
      latency_(from_seconds(link.latency_seconds)) {}

bool LinkTransport::is_far(int peer) const {
  if (peer == rank()) return false;
  const std::span<const int> hosts = inner_->hosts();
  return hosts.empty() ||
         hosts[static_cast<std::size_t>(peer)] != hosts[static_cast<std::size_t>(rank())];
}

Time LinkTransport::time_of(std::size_t num_bytes) const {
  return from_seconds(static_cast<double>(num_bytes) / link_.bytes_per_second);
}

Time LinkTransport::leave(Time ready, std::size_t num_bytes) {
  return egress_.occupy(ready, time_of(num_bytes)) + latency_;
}

Time LinkTransport::arrive(Time arrival, std::size_t num_bytes) {
  const Time length = time_of(num_bytes);
  return ingress_.occupy(arrival - length, length);
}

void LinkTransport::expect(Time arrival, int from) {
  if (arrival <= arrived_) return;
  arrived_ = arrival;
  arrived_from_ = from;
}

void LinkTransport::catch_up() {
  const Time moment = arrived_;
  if (now() >= moment) return;
  const Time limit = now() + from_seconds(timeout_seconds_);
  const ExactSleep sleep;
  while (true) {
    inner_->throw_if_failed();
    const Time time = now();
    if (time >= moment) return;
    if (time >= limit) break;
    sleep.until(std::min({moment, limit, time + kLongestSleep}));
  }
  const RankWait wait{rank(), arrived_from_, call_, timeout_seconds_};
  fail_and_throw(wait.late_over(to_string(link_)));
}

void LinkTransport::post_stamp(int to, Time time) {
  std::deque<Stamp>& stamps = stamps_[static_cast<std::size_t>(to)];
  // Of those that may still be read there are kMaxOpenMessages.
  while (stamps.size() > kMaxOpenMessages) {
    inner_->wait_sent(to, stamps.front().ticket);
    stamps.pop_front();
  }
  Stamp& stamp = stamps.emplace_back();
  stamp.time = time;
  stamp.ticket = inner_->post(to, std::as_bytes(std::span(&stamp.time, 1)));
}

Time LinkTransport::take_stamp(int from) {
  Time time;
  std::memcpy(&time, inner_->take(from, sizeof(time)), sizeof(time));
  inner_->release(from);
  return time;
}

void LinkTransport::announce(const CallHeader& call, double timeout_seconds) {
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  announced_at_ = now();
  arrived_ = {};
  inner_->announce(call, timeout_seconds);
}

// Everybody's announcement has been read by now; here it gets the time that it takes.
void LinkTransport::begin_data() {
  inner_->begin_data();
  for (int peer = 0; peer < world_size(); ++peer) {
    if (is_far(peer)) post_stamp(peer, announced_at_ + latency_);
  }
  for (int peer = 0; peer < world_size(); ++peer) {
    if (is_far(peer)) expect(take_stamp(peer), peer);
  }
  begin_step();
}

void LinkTransport::end_data() {
  catch_up();
  // Peers may still read stamps of messages that nobody has waited for.
  for (int peer = 0; peer < world_size(); ++peer) {
    std::deque<Stamp>& stamps = stamps_[static_cast<std::size_t>(peer)];
    if (!stamps.empty()) inner_->wait_sent(peer, stamps.back().ticket);
    stamps.clear();
  }
  inner_->end_data();
}

void LinkTransport::begin_step() {
  step_begin_ = std::max(now(), arrived_);
}

Ticket LinkTransport::post(int to, Bytes data) {
  if (is_far(to)) {
    post_stamp(to, leave(step_begin_, data.size()));
  } else {
    catch_up();  // it carries no time
  }
  return inner_->post(to, data);
}

const std::byte* LinkTransport::take(int from, std::size_t num_bytes) {
  if (is_far(from)) expect(arrive(take_stamp(from), num_bytes), from);
  return inner_->take(from, num_bytes);
}

void LinkTransport::send_message(int to, const CallHeader& call, Bytes data) {
  if (!is_far(to)) return inner_->send_message(to, call, data);
  const Time arrival = leave(now(), data.size());
  letter_.resize(sizeof(arrival) + data.size());
  std::memcpy(letter_.data(), &arrival, sizeof(arrival));
  std::ranges::copy(data, letter_.begin() + sizeof(arrival));
  inner_->send_message(to, call, letter_);
}

void LinkTransport::receive_message(int from, const CallHeader& call, std::span<std::byte> data,
                                    double timeout_seconds) {
  if (!is_far(from)) return inner_->receive_message(from, call, data, timeout_seconds);
  call_ = call;
  timeout_seconds_ = timeout_seconds;
  arrived_ = {};
  Time arrival;
  letter_.resize(sizeof(arrival) + data.size());
  inner_->receive_message(from, call, letter_, timeout_seconds);
  std::memcpy(&arrival, letter_.data(), sizeof(arrival));
  std::copy(letter_.begin() + sizeof(arrival), letter_.end(), data.begin());
  expect(arrive(arrival, data.size()), from);
  catch_up();
}

}  // namespace lockstep::comm
