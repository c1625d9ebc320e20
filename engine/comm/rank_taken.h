// What a process hears that comes as a rank which another process is already. The first one stays;
// the late one alone is refused, and nobody else hears of it: it may belong to another job.
#pragma once

#include <string>
#include <string_view>

#include "engine/core/error.h"

namespace lockstep::comm {

// Whoever fails to join aborts the rendezvous of all ranks, but not for this.
class RankTaken : public Error {
 public:
  // is_here: its holder takes part. has_left: it has ended, so its job is about to end as well.
  enum class Holder { is_here, has_left };

  RankTaken(std::string_view operation, std::string_view message, Holder holder = Holder::is_here)
      : Error(ErrorCode::Comm, operation, message), holder_(holder) {}

  Holder holder() const noexcept { return holder_; }

 private:
  Holder holder_;
};

// "process 1234 on node7".
std::string name_of_process(int process, std::string_view host_name);
// This one.
std::string name_of_this_process();

// "[connect] rank 1 is taken by process 1234 on node7: ...". holder: the name of a process.
RankTaken rank_taken(std::string_view operation, int rank, std::string_view holder);

}  // namespace lockstep::comm
