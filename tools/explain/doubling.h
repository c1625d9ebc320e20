// What a row's step would take on twice its devices, in sentences.
#pragma once

#include <optional>
#include <string>

#include "tools/explain/run_rows.h"

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

}  // namespace lockstep::tools
