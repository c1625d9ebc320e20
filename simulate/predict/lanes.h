// A discrete-event simulation of work on lanes: a device's compute stream, its communication
// kernels, copies over a shared link, the host. A lane does one piece of work at a time, in the
// order in which they were added; a piece begins when all that it waits for is done.
//
// Overlap has a price. While a communication kernel and a compute kernel are under way together
// they share a GPU's multiprocessors and memory, so both go on more slowly (Interference); copy
// engines and the host cost the compute lane nothing.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/trace/span.h"
#include "simulate/predict/interference.h"

namespace lockstep::predict {

inline constexpr std::size_t kEveryDevice = static_cast<std::size_t>(-1);

enum class WorkLane : std::size_t { compute, comm, up, host, down, batch, kCount };

struct Work {
  WorkLane lane = WorkLane::compute;
  trace::Category category = trace::Category::op;
  const char* name = "";  // lives as long as the program: a literal, or trace::intern()
  double seconds = 0;     // alone
  std::size_t num_bytes = 0;
  std::vector<std::size_t> after = {};  // indices of work that was added before
  std::size_t device = kEveryDevice;    // where devices do different things
};

struct DoneWork {
  double begin = 0;
  double end = 0;
};

// When each piece of work begins and ends. Cost: linear in the work.
// REQUIRES: `after` names earlier work.
std::vector<DoneWork> run_lanes(const std::vector<Work>& work, const Interference& interference);

}  // namespace lockstep::predict
