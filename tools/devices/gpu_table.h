// Shows the list of GPUs to people, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/devices/gpu_list.h"

namespace lockstep::tools {

// Three parts: a line per GPU in the style of nvidia-smi, its processes, and with two GPUs or more
// how they reach each other; then the notes. An unknown value is "-". Empty without a GPU.
std::string gpu_table(const GpuList& list);

// {"driver", "nvml", "newest_cuda", "nvml_problem", "cuda_problem", "cuda_visible_devices", "gpus":
// [...], "links": [...], "notes": [...]}; unknown values are null.
nlohmann::ordered_json gpu_json(const GpuList& list);

// A text table whose columns are as wide as their widest cell.
class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit TextTable(std::vector<Column> columns);

  // REQUIRES: one cell per column. Width counts bytes, so cells must be ASCII.
  void add_row(std::vector<std::string> cells);

  // A line of titles and one line per row, each with a newline and without trailing spaces.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::tools
