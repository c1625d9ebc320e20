// What the supervisor knows of one rank.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include "engine/core/files.h"
#include "engine/launch/console.h"
#include "engine/launch/end_order.h"
#include "engine/launch/log_file.h"

namespace lockstep::launch {

// One output stream of a rank.
struct WorkerStream {
  FileDescriptor pipe;  // closed: at its end
  bool on_console = true;
  LogFile log;
  LineSplitter lines;
};

struct Worker {
  int rank = 0;
  int local_rank = 0;
  pid_t process = 0;
  std::optional<int> wait_status;                // set when it has ended
  std::size_t end_number = EndOrder::kNotEnded;  // of a failed one
  std::array<WorkerStream, 3> streams;           // [1] stdout, [2] stderr; [0] is not used
  std::string last_error_line;                   // the last one on stderr that is not empty
  std::string held_line;   // not on the console yet: its last one, and its error file's message
  std::string error_file;  // where it was asked to say why it ends; or ""

  bool has_failed() const { return wait_status && *wait_status != 0; }
};

}  // namespace lockstep::launch
