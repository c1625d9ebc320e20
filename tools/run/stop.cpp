#include "tools/run/stop.h"

#include <signal.h>

#include <algorithm>
#include <vector>

#include "engine/tensor/tensor.h"
#include "engine/trace/counters.h"
#include "tools/run/interruption.h"

namespace lockstep::tools {

bool StopOfThreads::is_before(std::size_t step) {
  const std::lock_guard lock(mutex_);
  if (!end_ && Interruption::signal() != 0) end_ = std::max(next_, step);
  if (end_ && step >= *end_) return true;
  next_ = std::max(next_, step + 1);
  return false;
}

int StopOfThreads::signal() const {
  return Interruption::signal();
}

StopOfProcesses::StopOfProcesses(comm::Communicator& communicator) : communicator_(communicator) {}

bool StopOfProcesses::is_before(std::size_t step) {
  constexpr double kSecondsBetween = 0.1;
  constexpr std::size_t kMostGrowth = 8;  // the first steps are slower than the others
  if (step < next_) return false;
  const trace::UncountedScope no_part_of_a_step({communicator_.rank()});
  const int own = Interruption::signal();
  const double seconds = std::chrono::duration<double>(Clock::now() - asked_).count();
  // All ranks must count the same steps, so the time is rank 0's.
  const Tensor sums_of_ranks =
      Tensor::from(std::vector<double>{own == SIGINT ? 1.0 : 0.0, own == SIGTERM ? 1.0 : 0.0,
                                       communicator_.rank() == 0 ? seconds : 0.0},
                   {3});
  communicator_.all_reduce(sums_of_ranks).wait();
  const std::vector<double> sums = sums_of_ranks.to_vector<double>();
  if (sums[0] + sums[1] > 0) {
    signal_ = sums[1] > 0 ? SIGTERM : SIGINT;
    return true;
  }
  const double steps = kSecondsBetween * static_cast<double>(num_steps_) / std::max(sums[2], 1e-9);
  num_steps_ = std::max<std::size_t>(
      1, static_cast<std::size_t>(std::min(steps, static_cast<double>(kMostGrowth * num_steps_))));
  next_ = step + num_steps_;
  asked_ = Clock::now();
  return false;
}

}  // namespace lockstep::tools
