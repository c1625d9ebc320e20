#include "engine/plan/scatter.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace lockstep::plan {

ScatterPlan scatter_plan(std::size_t num_rows, std::size_t num_devices) {
  require(num_devices > 0, ErrorCode::Usage, "scatter", "needs at least one device, found none");
  ScatterPlan plan{num_rows, num_devices, {}};
  const std::size_t rows_per_shard = num_rows / num_devices + (num_rows % num_devices != 0 ? 1 : 0);
  const std::size_t num_parts =
      rows_per_shard == 0 ? num_devices
                          : num_rows / rows_per_shard + (num_rows % rows_per_shard != 0 ? 1 : 0);
  for (std::size_t index = 0; index < num_parts; ++index) {
    const std::size_t offset = index * rows_per_shard;
    plan.parts.push_back({index, offset, std::min(rows_per_shard, num_rows - offset)});
  }
  return plan;
}

ScatterPlan scatter_plan(const Shape& shape, std::size_t dim, std::size_t num_devices) {
  require(dim < shape.num_dims(), ErrorCode::Shape, "scatter",
          "cannot split {}-D input along dim {}; its shape is {}", shape.num_dims(), dim,
          to_string(shape));
  return scatter_plan(shape[dim], num_devices);
}

std::string to_string(const ScatterPlan& plan) {
  std::string text = fmt::format("{} rows on {} devices\n", plan.num_rows, plan.num_devices);
  for (const ScatterPart& part : plan.parts) {
    fmt::format_to(std::back_inserter(text), "  device {}: rows [{}, {}), {} row{}\n", part.index,
                   part.offset, part.offset + part.size, part.size, part.size == 1 ? "" : "s");
  }
  for (std::size_t idle = plan.parts.size(); idle < plan.num_devices; ++idle) {
    fmt::format_to(std::back_inserter(text), "  device {}: idle\n", idle);
  }
  return text;
}

}  // namespace lockstep::plan
