// A discrete-event simulation of work on lanes: a device's compute stream, its communication
// kernels, copies over a shared link, the host. A lane does one piece of work at a time, in the
// order in which they were added; a piece begins when everything it waits for is done.
//
// Overlap has a price. While a communication kernel and a compute kernel are under way together
// they share a GPU's multiprocessors and memory, so both run more slowly (Interference); copy
// engines and the host cost the compute lane nothing.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/trace/span.h"

namespace lockstep::predict {

// The share of their speed that computation and communication keep while a device does both.
struct Interference {
  double compute = 1;
  double comm = 1;
};

// A kernel next to an all-reduce keeps 47/80 of its speed: an H100's GEMM fell from about 80 % to
// 47 % of peak next to NCCL (docs/prediction-how.md has the source of the figure). The all-reduce
// slows down too, by the GEMM's share of memory traffic; 0.8 is assumed.
inline constexpr Interference kOverlapInterference = {47.0 / 80, 0.8};

inline constexpr std::size_t kEveryDevice = static_cast<std::size_t>(-1);

enum class WorkLane : std::size_t { compute, comm, up, host, down, kCount };

struct Work {
  WorkLane lane = WorkLane::compute;
  trace::Category category = trace::Category::op;
  const char* name = "";  // must outlive the program: a literal, or from trace::intern()
  double seconds = 0;     // alone
  std::size_t num_bytes = 0;
  std::vector<std::size_t> after = {};  // indices of earlier work
  std::size_t device = kEveryDevice;    // if devices do different things
};

struct DoneWork {
  double begin = 0;
  double end = 0;
};

// When each piece of work begins and ends. Cost: linear in the work.
// REQUIRES: `after` names earlier work.
std::vector<DoneWork> run_lanes(const std::vector<Work>& work, const Interference& interference);

}  // namespace lockstep::predict
