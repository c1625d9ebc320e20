// What `predict --trace` writes and `report` knows again.
#pragma once

#include <cstddef>

namespace lockstep::tools {

inline constexpr char kPredictedStep[] = "predicted step";  // the span of each device's step
inline constexpr std::size_t kMostPredictedDevices = 8;     // of which lanes are written

}  // namespace lockstep::tools
