// In which order the ranks of a group ended: the failure to report is the first one.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <limits>
#include <vector>

#include "engine/core/files.h"

namespace lockstep::launch {

// A rank that fails makes others fail, and the kernel reports all their deaths in any order, at
// once when this process was late to ask. epoll, however, keeps the order of events. Two of them
// tell of a rank's end, and the earlier one counts:
//   - its stderr is closed, when its connections end too: before another rank has noticed, said so
//     and ended (ranks that share memory wait for the end of a peer that died, arena/group.cpp);
//   - it has ended (its pidfd says so), where a process that it started holds its stderr open.
class EndOrder {
 public:
  static constexpr std::size_t kNotEnded = std::numeric_limits<std::size_t>::max();

  // Throws Error{Io}.
  EndOrder();

  // For a new group of ranks, numbered from 0.
  void start_over(std::size_t num_workers);
  // error_stream: where its stderr is read.
  void watch(std::size_t worker, pid_t process, int error_stream);

  // Asks for what has happened up to now. REQUIRES: called before an error stream at its end is
  // closed, which would take its event away.
  void update();

  // For a rank that was found dead: it has ended now, unless an event has told so before.
  void note_end(std::size_t worker);

  // 0 for the first rank that ended, 1 for the next, ...; kNotEnded.
  std::size_t number_of(std::size_t worker) const { return numbers_[worker]; }

 private:
  const FileDescriptor epoll_;
  std::vector<FileDescriptor> processes_;  // pidfds
  std::vector<std::size_t> numbers_;
  std::size_t num_ended_ = 0;
};

}  // namespace lockstep::launch
