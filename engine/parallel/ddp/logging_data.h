// A report of the last step that synchronised, with the names of PyTorch's DDP logging data.
#pragma once

#include <chrono>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

namespace lockstep::parallel {

// On the clock of the host; not known on CUDA, where the host only enqueues (docs/gpus.md).
struct DdpTimes {
  double forward_seconds = 0;
  double backward_seconds = 0;       // from the first gradient to the last
  double communication_seconds = 0;  // from the first bucket's start until all are reduced
  double overlap_seconds = 0;        // of it, while backward went on
};

// Takes the moments of a step, in the order of its methods.
class DdpStopwatch {
 public:
  void begin_forward() { forward_ = Clock::now(); }
  void end_forward() { forward_end_ = Clock::now(); }
  void begin_backward() { backward_ = Clock::now(), first_bucket_ = {}; }
  void start_bucket() {  // the first one of a backward pass counts
    if (first_bucket_ == Clock::time_point{}) first_bucket_ = Clock::now();
  }
  void end_backward() { backward_end_ = Clock::now(); }
  // All buckets have been reduced.
  void end_step();

  const DdpTimes& last_step() const { return last_step_; }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point forward_, forward_end_, backward_, first_bucket_, backward_end_;
  DdpTimes last_step_;
};

struct DdpLoggingData {
  int rank = 0;
  int world_size = 1;
  std::size_t num_steps = 0;                   // that synchronised
  std::vector<std::size_t> bucket_bytes = {};  // in the order in which they are reduced
  bool was_rebuilt = false;                    // after the first step, in the order of readiness
  std::vector<std::size_t> ready_order = {};   // parameters that require a gradient, by number
  std::optional<DdpTimes> last_step = {};
};

nlohmann::ordered_json to_json(const DdpLoggingData& data);

}  // namespace lockstep::parallel
