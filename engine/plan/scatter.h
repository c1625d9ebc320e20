// The scatter plan: which rows of a batch each device gets. The cut is torch.chunk's:
// chunk = ceil(N/n) rows, and ceil(N/chunk) chunks, so the last chunk may be smaller and the last
// devices may get nothing.
//   30 rows on 3 devices: 10, 10, 10        10 on 4: 3, 3, 3, 1
//   10 rows on 8 devices: 2, 2, 2, 2, 2     (three devices stay idle)
//
// Source: torch/nn/parallel/scatter_gather.py, torch.chunk.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/core/shape.h"

namespace lockstep::plan {

// Part `index`, for the device at that place: rows offset ... offset + size - 1.
struct ScatterPart {
  std::size_t index = 0;
  std::size_t offset = 0;
  std::size_t size = 0;

  bool operator==(const ScatterPart&) const = default;
};

// The parts are consecutive and cover all rows: gathering them in order gives the batch back.
struct ScatterPlan {
  std::size_t num_rows = 0;     // the size of the dimension that is cut
  std::size_t num_devices = 0;  // asked for
  std::vector<ScatterPart> parts;

  std::size_t num_idle_devices() const { return num_devices - parts.size(); }
  bool operator==(const ScatterPlan&) const = default;
};

// Cuts num_rows for num_devices. 0 rows make num_devices empty parts, as torch.chunk does.
// Throws Error{Usage} if num_devices is 0.
ScatterPlan scatter_plan(std::size_t num_rows, std::size_t num_devices);

// Cuts a tensor along dim; the shape of a part is shape.with(dim, part.size).
// Throws Error{Shape} if the shape has no such dim: "cannot split 4-D input along dim 5".
ScatterPlan scatter_plan(const Shape& shape, std::size_t dim, std::size_t num_devices);

// "10 rows on 4 devices" and a line per part: "  device 0: rows [0, 3), 3 rows"; idle devices are
// named.
std::string to_string(const ScatterPlan& plan);

}  // namespace lockstep::plan
