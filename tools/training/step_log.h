// The file of --log: one JSON object per line and step.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace lockstep::tools {

struct StepRecord {
  std::size_t step = 0;
  std::size_t epoch = 0;
  double loss = 0;  // mean over the global batch
  double learning_rate = 0;
  double grad_norm = 0;  // before clipping
  double step_seconds = 0;
  double samples_per_second = 0;
};

class StepLog {
 public:
  // Throws Error{Io} when the file cannot be written.
  explicit StepLog(const std::string& path);
  void write(const StepRecord& record);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace lockstep::tools
