#include "simulate/slow_motion/device_lanes.h"

#include <algorithm>

namespace lockstep::slow_motion {
namespace {

Time nanoseconds(double count) {
  return Time(static_cast<Time::rep>(count));
}

double count(Time time) {
  return static_cast<double>(time.count());
}

std::chrono::steady_clock::time_point clock_time(Time time) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(time));
}

}  // namespace

double DeviceLanes::speed(const State& state) const {
  return &state == &states_[0] ? options_.interference.compute : options_.interference.comm;
}

void DeviceLanes::advance_alone(State& state, Time until) {
  if (state.at >= until) return;
  const double passed = count(until - state.at);
  if (passed >= state.left) {
    state.is_done = true;
    state.end = state.at + nanoseconds(state.left);
    return;
  }
  state.left -= passed;
  state.at = until;
}

Time DeviceLanes::begin(Lane lane, Time earliest, Time alone) {
  std::unique_lock lock(mutex_);
  State& mine = state(lane);
  State& beside = other(lane);
  changed_.wait(lock, [&] { return !mine.is_busy; });
  Time start = std::max(earliest, mine.end);
  if (lane == Lane::compute && options_.pace == Pace::sleeping) {
    const Time late = runtime::now() - start;
    if (late > options_.patience) start += late;
  }
  mine = {true, false, start, start, count(alone), mine.end};
  if (is_under_way(beside)) {
    advance_alone(beside, start);
    if (is_under_way(beside)) advance_alone(mine, beside.at);
  }
  changed_.notify_all();
  return start;
}

Time DeviceLanes::end_of(const State& mine, const State& beside) const {
  if (!is_under_way(beside)) return mine.at + nanoseconds(mine.left);
  const double until_mine = mine.left / speed(mine);
  const double until_beside = beside.left / speed(beside);
  if (until_mine <= until_beside) return mine.at + nanoseconds(until_mine);
  return mine.at + nanoseconds(until_beside + mine.left - until_beside * speed(mine));
}

void DeviceLanes::complete(State& mine, State& beside, Time end) {
  if (is_under_way(beside)) {
    const Time beside_end = end_of(beside, mine);
    if (beside_end <= end) {
      beside.is_done = true;
      beside.end = beside_end;
    } else {
      beside.left -= count(end - beside.at) * speed(beside);
      beside.at = end;
    }
  }
  mine.is_busy = false;
  mine.end = end;
}

Time DeviceLanes::finish(Lane lane) {
  const runtime::ExactSleep exact;
  std::unique_lock lock(mutex_);
  State& mine = state(lane);
  State& beside = other(lane);
  while (true) {
    const Time end = mine.is_done ? mine.end : end_of(mine, beside);
    if (options_.pace == Pace::none || runtime::now() >= end) {
      mine.is_done ? static_cast<void>(mine.is_busy = false) : complete(mine, beside, end);
      changed_.notify_all();
      return end;
    }
    changed_.wait_until(lock, clock_time(end));
  }
}

void DeviceLanes::cancel(Lane lane) {
  const std::lock_guard lock(mutex_);
  state(lane).is_busy = false;
  changed_.notify_all();
}

Time DeviceLanes::reached(Lane lane) const {
  const std::lock_guard lock(mutex_);
  const State& mine = states_[static_cast<std::size_t>(lane)];
  return mine.is_busy && !mine.is_done ? mine.begin : mine.end;
}

}  // namespace lockstep::slow_motion
