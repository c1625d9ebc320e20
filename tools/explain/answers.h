// The answers of explain.h about one row, in sentences: what twice its devices would give, from
// which batch size they pay, and what to change.
#pragma once

#include <optional>
#include <string>

#include "tools/explain/step_cost.h"

namespace lockstep::tools {

// What the devices of a measured row run on.
struct SharedHardware {
  std::size_t num_cores = 1;
  bool is_cpu = true;
};

// Of found.rows[index]; by the formula of double_devices() and, of a single device, by the workload
// without communication, which the file does not know then. Beside it what the file measured with
// twice the devices, if it did.
std::string doubling_text(const RunRows& found, std::size_t index, const SharedHardware& hardware,
                          const std::optional<FileWorkload>& workload);

// From which batch size devices pay, by the formulas of step_cost.h. all: rows of row's kind, those
// of other batches among them. Says that the file cannot tell where its rows do not bear the
// formulas out.
std::string batch_text(const RunRows& all, const FileRow& row, const FileRow& baseline);

// Each row of `all` that is `row` but for what a --what-if changed; empty where there is none.
std::string changes_text(const RunRows& all, const FileRow& row);

// What to change so that the devices are worth more, largest gain first. all: the rows of found,
// and those of other batches, buckets or links. Of found.rows[index]: what each part of its step
// costs that better use of the devices would save, and which row of the file is faster already.
std::string remedies_text(const RunRows& found, const RunRows& all, std::size_t index,
                          const SharedHardware& hardware);

}  // namespace lockstep::tools
