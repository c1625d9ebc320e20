#include "engine/comm/thread_group.h"

#include "engine/comm/plan_communicator.h"
#include "engine/comm/transport/thread/thread_transport.h"

namespace lockstep::comm {

std::vector<std::unique_ptr<Communicator>> make_thread_group(int world_size,
                                                             const ThreadGroupOptions& options) {
  require(world_size >= 1, ErrorCode::Usage, "make_thread_group",
          "a group has at least one rank, found {}", world_size);
  using Cores = ThreadArena::Cores;
  const auto arena = std::make_shared<ThreadArena>(
      world_size, options.link ? Cores::shared : Cores::own);  // waiting costs no CPU
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < world_size; ++rank) {
    group.push_back(
        make_plan_communicator(std::make_unique<ThreadTransport>(arena, rank), options.link));
    group.back()->set_timeout_seconds(options.timeout_seconds);
    group.back()->set_default_plan(options.default_plan);
  }
  return group;
}

}  // namespace lockstep::comm
