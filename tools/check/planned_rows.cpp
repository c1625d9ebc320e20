#include "tools/check/planned_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/check/elements.h"
#include "tools/check/reference_step.h"
#include "tools/check/rules.h"

namespace lockstep::tools {

std::vector<std::size_t> PlannedRows::of_step(std::size_t step) {
  const std::size_t num_steps = task_.steps_per_epoch();
  const std::size_t epoch = step / num_steps;
  if (epoch_ != epoch) {
    order_ = rules::epoch_order(task_, epoch);
    epoch_ = epoch;
  }
  const std::size_t begin = step % num_steps * task_.batch;
  const std::size_t end = std::min(begin + task_.batch, order_.size());
  return {order_.begin() + static_cast<std::ptrdiff_t>(begin),
          order_.begin() + static_cast<std::ptrdiff_t>(end)};
}

std::optional<std::string> PlannedRows::wrong_place(const data::Batch& batch,
                                                    plan::ScatterPart planned,
                                                    std::size_t num_rows) {
  const std::size_t size = batch.labels.size(0);
  if (size != planned.size || (size > 0 && batch.global_offset != planned.offset)) {
    return fmt::format(
        "the shard of {} rows begins at row {} of the global batch; the plan gives this rank {} "
        "rows from row {}",
        size, batch.global_offset, planned.size, planned.offset);
  }
  if (batch.num_global_rows == num_rows) return std::nullopt;
  return fmt::format("the rank counts {} rows in the global batch, which has {}",
                     batch.num_global_rows, num_rows);
}

std::optional<std::string> PlannedRows::wrong_row(const data::Batch& batch, std::size_t step) {
  const std::vector<std::size_t> global_rows = of_step(step);
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < batch.labels.size(0); ++i) {
    rows.push_back(global_rows[std::min(batch.global_offset + i, global_rows.size() - 1)]);
  }
  const PlainBatch expected = plain_batch(task_, step / task_.steps_per_epoch(), rows);
  const auto say = [&](std::size_t place, const char* what) {
    return fmt::format("row {} of the shard has {} than row {} of the global batch", place, what,
                       batch.global_offset + place);
  };
  const auto labels = batch.labels.to_vector<std::int64_t>();
  const auto label = std::ranges::mismatch(labels, expected.labels);
  if (label.in1 != labels.end()) {
    const auto place = static_cast<std::size_t>(label.in1 - labels.begin());
    return say(place / task_.data->train.labels_per_row(), "another label");
  }
  // The device multiplied the pixels by the scale, so they may differ in the last bit.
  const double tolerance = task_.dtype == DType::float64 ? 0x1p-49 : 0x1p-20;
  const std::vector<double> found = all_elements(batch.x);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double feature = expected.features[i];
    if (std::abs(found[i] - feature) <= tolerance * feature) continue;
    return say(i / task_.data->train.num_features, "other features");
  }
  return std::nullopt;
}

}  // namespace lockstep::tools
