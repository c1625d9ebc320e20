// Lab 03: which rows of a batch each device gets. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <vector>

namespace lab {

// The rows offset ... offset + size - 1.
struct Part {
  std::size_t offset = 0;
  std::size_t size = 0;
};

// Cuts num_rows rows for num_devices devices as torch.chunk does: parts of ceil(rows / devices)
// rows, one behind the other, the last one with what is left. Devices for which nothing is left get
// no part: the result may have fewer than num_devices of them.
// REQUIRES: num_rows and num_devices are at least 1.
std::vector<Part> scatter_plan(std::size_t num_rows, std::size_t num_devices);

}  // namespace lab
