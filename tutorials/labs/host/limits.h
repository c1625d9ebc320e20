// What a process may use: set before it does anything for a submission.
#pragma once

#include <cstddef>

namespace lab {

struct Limits {
  std::size_t cpu_seconds = 0;
  std::size_t memory_bytes = 0;  // of address space; 0: none
  std::size_t file_bytes = 0;    // of each file that it writes
  std::size_t open_files = 0;
};

// Sets them for this process and what it starts, without core files. Throws Error{Io}.
void set_limits(const Limits& limits);

}  // namespace lab
