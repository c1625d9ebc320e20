#include "scatter_plan.h"

#include <algorithm>

#include "lab.h"

namespace lab {

std::vector<Part> scatter_plan(std::size_t num_rows, std::size_t num_devices) {
  // SOLUTION begin: scatter_plan: cut the rows into parts of ceil(num_rows / num_devices), the last
  // one smaller
  const std::size_t chunk = (num_rows + num_devices - 1) / num_devices;
  std::vector<Part> parts;
  for (std::size_t offset = 0; offset < num_rows; offset += chunk) {
    parts.push_back({offset, std::min(chunk, num_rows - offset)});
  }
  return parts;
  // SOLUTION end
}

}  // namespace lab
