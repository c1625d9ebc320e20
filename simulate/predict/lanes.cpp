#include "simulate/predict/lanes.h"

#include <algorithm>
#include <array>
#include <limits>

namespace lockstep::predict {
namespace {

constexpr std::size_t kNumLanes = static_cast<std::size_t>(WorkLane::kCount);
constexpr double kNever = std::numeric_limits<double>::infinity();

struct LaneState {
  std::vector<std::size_t> queue;
  std::size_t next = 0;  // place in the queue
  bool is_busy = false;
  double left = 0;  // seconds of the work under way, alone
};

class Simulation {
 public:
  Simulation(const std::vector<Work>& work, const Interference& interference)
      : work_(work), interference_(interference), done_(work.size()), is_done_(work.size(), 0) {
    for (std::size_t i = 0; i < work.size(); ++i) lane(work[i].lane).queue.push_back(i);
  }

  std::vector<DoneWork> run() {
    while (start_what_can() || is_anything_busy()) advance();
    return done_;
  }

 private:
  LaneState& lane(WorkLane which) { return lanes_[static_cast<std::size_t>(which)]; }

  bool can_start(const Work& work) const {
    return std::ranges::all_of(work.after, [&](std::size_t i) { return is_done_[i] != 0; });
  }

  bool start_what_can() {
    bool started = false;
    for (LaneState& state : lanes_) {
      if (state.is_busy || state.next == state.queue.size()) continue;
      const std::size_t index = state.queue[state.next];
      if (!can_start(work_[index])) continue;
      state.is_busy = true;
      state.left = work_[index].seconds;
      done_[index].begin = now_;
      started = true;
    }
    return started;
  }

  bool is_anything_busy() const {
    return std::ranges::any_of(lanes_, [](const LaneState& state) { return state.is_busy; });
  }

  double speed(std::size_t which) {
    const bool both = lane(WorkLane::compute).is_busy && lane(WorkLane::comm).is_busy;
    if (!both) return 1;
    if (which == static_cast<std::size_t>(WorkLane::compute)) return interference_.compute;
    return which == static_cast<std::size_t>(WorkLane::comm) ? interference_.comm : 1;
  }

  // To the next end of a piece of work.
  void advance() {
    std::array<double, kNumLanes> seconds{};
    double step = kNever;
    for (std::size_t i = 0; i < kNumLanes; ++i) {
      seconds[i] = lanes_[i].is_busy ? lanes_[i].left / speed(i) : kNever;
      step = std::min(step, seconds[i]);
    }
    std::array<double, kNumLanes> speeds{};
    for (std::size_t i = 0; i < kNumLanes; ++i) speeds[i] = speed(i);
    now_ += step;
    for (std::size_t i = 0; i < kNumLanes; ++i) {
      LaneState& state = lanes_[i];
      if (!state.is_busy) continue;
      state.left -= step * speeds[i];
      if (seconds[i] > step) continue;
      const std::size_t index = state.queue[state.next++];
      state.is_busy = false;
      done_[index].end = now_;
      is_done_[index] = 1;
    }
  }

  const std::vector<Work>& work_;
  const Interference interference_;
  std::array<LaneState, kNumLanes> lanes_;
  std::vector<DoneWork> done_;
  std::vector<char> is_done_;
  double now_ = 0;
};

}  // namespace

std::vector<DoneWork> run_lanes(const std::vector<Work>& work, const Interference& interference) {
  return Simulation(work, interference).run();
}

}  // namespace lockstep::predict
