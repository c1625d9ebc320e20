// The list of GPUs for people, and the same as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/devices/gpu_list.h"

namespace lockstep::tools {

// Three parts: a line per GPU in the spirit of nvidia-smi, its processes, and with two GPUs or more
// how they reach each other; then the notes. A value that nobody told is "-". Empty without a GPU.
std::string gpu_table(const GpuList& list);

// {"driver", "nvml", "newest_cuda", "nvml_problem", "cuda_problem", "cuda_visible_devices", "gpus":
// [...], "links": [...], "notes": [...]}; what nobody told is null.
nlohmann::ordered_json gpu_json(const GpuList& list);

// Columns of text as wide as their widest cell.
class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit TextTable(std::vector<Column> columns);

  // REQUIRES: a cell for each column. Width counts bytes: cells are ASCII.
  void add_row(std::vector<std::string> cells);

  // A line of titles and a line per row, each with a newline and without spaces at its end.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::tools
