// Readers of run files and of what lies beside them: all that is said, shown and predicted from
// them.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::testing {

// Throws std::logic_error.
inline void expect(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// Each as FileReader::read, and the files that it must be able to read.
void read_workload_file(const std::filesystem::path& path);
std::vector<std::string> workload_files();
void read_run(const std::filesystem::path& path);
std::vector<std::string> run_files();
void read_loss_log(const std::filesystem::path& path);
std::vector<std::string> loss_logs();
void read_timeline(const std::filesystem::path& path);
std::vector<std::string> timelines();

}  // namespace lockstep::testing
