// The answers of explain.h about one row, in sentences: what twice its devices would give, from
// which batch size they pay, and what to change.
#pragma once

#include <optional>
#include <string>

#include "tools/explain/step_cost.h"

namespace lockstep::tools {

// The hardware of a measured row's devices.
struct SharedHardware {
  std::size_t num_cores = 1;
  bool is_cpu = true;
};

// Answers what twice the devices of found.rows[index] would give. The figure comes from
// double_devices() or, for a single device, from the workload, which leaves out communication: the
// file cannot know it. If the file measured twice the devices, the answer quotes that too.
std::string doubling_text(const RunRows& found, std::size_t index, const SharedHardware& hardware,
                          const std::optional<FileWorkload>& workload);

// Answers from which batch size devices pay, by the formulas of step_cost.h. `all` holds the rows
// of row's kind, including those with other batches. If the rows contradict the formulas, the
// answer says that the file cannot tell.
std::string batch_text(const RunRows& all, const FileRow& row, const FileRow& baseline);

// Lists the rows of `all` that differ from `row` only by a --what-if; empty if there are none.
std::string changes_text(const RunRows& all, const FileRow& row);

// Lists what to change so that the devices are worth more, largest gain first: for each part of the
// step of found.rows[index], the time that better use of the devices would save, and the row of the
// file that is already faster. `all` holds the rows of found, and those with other batches, buckets
// or links.
std::string remedies_text(const RunRows& found, const RunRows& all, std::size_t index,
                          const SharedHardware& hardware);

}  // namespace lockstep::tools
