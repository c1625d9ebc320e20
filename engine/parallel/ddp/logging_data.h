// DDP's report on its buckets and its last step: GradReducer::logging_data().
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::parallel {

// A report of the last step that synchronised, with the names of PyTorch's DDP logging data.
struct DdpLoggingData {
  int rank = 0;
  int world_size = 1;
  std::size_t num_steps = 0;                   // steps that synchronised
  std::vector<std::size_t> bucket_bytes = {};  // in the order in which they are reduced
  bool was_rebuilt = false;                    // after the first step, in the order of readiness
  std::vector<std::size_t> ready_order = {};   // parameters that require a gradient, by number
  // On the clock of the host; not known on CUDA, where the host only enqueues (docs/gpus.md).
  struct Times {
    double forward_seconds = 0;
    double backward_seconds = 0;       // from the first gradient to the last
    double communication_seconds = 0;  // from the first bucket's start until all are reduced
    double overlap_seconds = 0;        // the part of communication_seconds before backward ended
  };
  std::optional<Times> last_step = {};
};

std::string to_json(const DdpLoggingData& data);

}  // namespace lockstep::parallel
