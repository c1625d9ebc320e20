// What is left of the speed of computation and of communication while a device does both.
#pragma once

namespace lockstep::predict {

struct Interference {
  double compute = 1;
  double comm = 1;
};

// A kernel beside an all-reduce: of its speed 47/80 is left. An H100's GEMM fell from about 80 % to
// 47 % of peak beside NCCL (the figure is in docs/prediction.md with its source). The all-reduce is
// slowed down too, by what the GEMM takes of memory; 0.8 is assumed.
inline constexpr Interference kOverlapInterference = {47.0 / 80, 0.8};

}  // namespace lockstep::predict
