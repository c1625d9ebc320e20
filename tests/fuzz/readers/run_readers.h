// Readers of run files and of what lies beside them: all that is said, shown and predicted from
// them.
#pragma once

#include <filesystem>
#include <stdexcept>

namespace lockstep::testing {

// Throws std::logic_error.
inline void expect(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// Each as FileReader::read.
void read_workload_file(const std::filesystem::path& path);
void read_run(const std::filesystem::path& path);
void read_loss_log(const std::filesystem::path& path);
void read_timeline(const std::filesystem::path& path);

}  // namespace lockstep::testing
