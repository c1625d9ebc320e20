// The two things that a GPU does at once, kernels and communication, in modelled time: each lane
// does one piece of work after the other, and while both are under way each is slower
// (predict::Interference), as in the predictor (predict/lanes.h). The predictor knows the whole
// step beforehand; here a thread reports work when it comes to it, and sleeps until it would have
// been done.
#pragma once

#include <array>
#include <condition_variable>
#include <mutex>

#include "engine/runtime/steady_time.h"
#include "simulate/predict/lanes.h"

namespace lockstep::slow_motion {

using runtime::Time;

enum class Lane { compute, comm };

// sleeping: a thread waits until its work would be done. none: it goes on at once, which shows how
// long the modelled and the real step take.
enum class Pace { none, sleeping };

class DeviceLanes {
 public:
  struct Options {
    predict::Interference interference;
    Pace pace = Pace::sleeping;
    Time origin{};  // no work begins before
    // If work on the compute lane comes later than it could have begun by more than this, it begins
    // when it comes: then the device was idle, and its thread was not merely late.
    Time patience{};
  };
  explicit DeviceLanes(const Options& options) : options_(options) {
    for (State& state : states_) state.end = options.origin;
  }

  // Begins work that takes `alone`, at `earliest` or once the lane's previous work is done, for
  // which the calling thread waits. Returns the time at which it begins.
  Time begin(Lane lane, Time earliest, Time alone);
  // Sleeps until the current work is done, and returns when that is.
  Time finish(Lane lane);
  // Drops the current work, which did not happen.
  void cancel(Lane lane);

  // When the lane's last work ended; or when its current work began, if it has some.
  Time reached(Lane lane) const;

 private:
  struct State {
    bool is_busy = false;
    bool is_done = false;  // its work is done in modelled time; its thread has not come for it yet
    Time begin{};
    Time at{};        // until when `left` is valid; the same for both while both lanes work
    double left = 0;  // nanoseconds that the work still takes alone
    Time end{};       // end of the last work that is done
  };

  State& state(Lane lane) { return states_[static_cast<std::size_t>(lane)]; }
  State& other(Lane lane) { return states_[1 - static_cast<std::size_t>(lane)]; }
  bool is_under_way(const State& state) const { return state.is_busy && !state.is_done; }
  double speed(const State& state) const;  // while both work
  // The lane works alone until then.
  void advance_alone(State& state, Time until);
  // When the work of `state` is done if nothing else begins.
  Time end_of(const State& state, const State& beside) const;
  void complete(State& state, State& beside, Time end);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::array<State, 2> states_;
};

}  // namespace lockstep::slow_motion
