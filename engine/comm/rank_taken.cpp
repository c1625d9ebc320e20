#include "engine/comm/rank_taken.h"

#include <fmt/format.h>
#include <unistd.h>

#include "engine/comm/host_identity.h"

namespace lockstep::comm {

std::string name_of_process(int process, std::string_view host_name) {
  return fmt::format("process {} on {}", process, host_name);
}

std::string name_of_this_process() {
  return name_of_process(getpid(), host_name_of(host_identity()));
}

RankTaken rank_taken(std::string_view operation, int rank, std::string_view holder) {
  return {operation,
          fmt::format("rank {} is taken by {}, so {} cannot be it too; give each process its own "
                      "RANK, and groups that use one store names of their own",
                      rank, holder, name_of_this_process())};
}

}  // namespace lockstep::comm
