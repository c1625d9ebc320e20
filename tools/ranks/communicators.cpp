#include "tools/ranks/communicators.h"

#include "engine/comm/process_group.h"
#include "engine/core/error.h"
#include "engine/launch/core_binding.h"

namespace lockstep::tools {

void require_comm(const RankFlags& flags) {
  require(flags.comm == "own", ErrorCode::Usage, "--comm",
          "'{}' is not available in this build; use own, which needs nothing else", flags.comm);
}

std::unique_ptr<comm::Communicator> make_communicator(const RankFlags& flags,
                                                      const launch::Job& job) {
  const launch::RankEnvironment& rank = job.rank();
  const auto bound = launch::find_variable(launch::current_environment(), launch::kBindVariable);
  comm::ProcessGroupOptions options;
  options.rank = rank.rank;
  options.world_size = rank.world_size;
  options.store = job.store();
  options.token = job.token();
  options.address = job.address();
  options.transport = comm::parse_transport_choice(flags.transport);
  options.timeout_seconds = flags.comm_timeout;
  options.default_plan = plan::parse_all_reduce_plan(flags.plan);
  if (bound) options.cores = comm::ProcessGroupOptions::Cores::own;
  return comm::make_process_group(options);
}

}  // namespace lockstep::tools
