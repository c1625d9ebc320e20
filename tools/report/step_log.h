// The file of --log: one JSON object per line and step.
#pragma once

#include <cstddef>
#include <string>

#include "engine/core/files.h"

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
  // The lines go to the temporary file of core/files.h, each as soon as it is known. All
  // throw Error{Io} when the file cannot be written.
  explicit StepLog(const std::string& path) : file_(path, "--log") {}
  void write(const StepRecord& record);

  // Makes the lines the file's content. Call it once, last; without it the file is as it was.
  void finish() { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace lockstep::tools
