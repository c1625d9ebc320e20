#include "engine/comm/thread_group.h"

#include "engine/act/machine.h"
#include "engine/audit/rank.h"
#include "engine/audit/switch.h"
#include "engine/comm/plan_communicator.h"
#include "engine/comm/transport/link/acted_link.h"
#include "engine/comm/transport/link/fixed_link.h"
#include "engine/comm/transport/thread/thread_transport.h"

namespace lockstep::comm {
namespace {

// Between the devices of the machine that is on stage, or as the options say.
std::unique_ptr<LinkModel> make_links(int rank, const ThreadGroupOptions& options) {
  if (act::Machine* machine = act::machine()) {
    return std::make_unique<ActedLink>(*machine, rank, machine->devices());
  }
  if (!options.link) return nullptr;
  return std::make_unique<FixedLink>(*options.link);
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_group(int world_size,
                                                             const ThreadGroupOptions& options) {
  require(world_size >= 1, ErrorCode::Usage, "make_thread_group",
          "a group has at least one rank, found {}", world_size);
  require(act::machine() == nullptr ||
              static_cast<std::size_t>(world_size) == act::machine()->devices().size(),
          ErrorCode::Usage, "make_thread_group",
          "{} ranks for the machine that is acted out, which has a device for each of {}",
          world_size, act::machine() == nullptr ? 0 : act::machine()->devices().size());
  using Cores = ThreadArena::Cores;
  const bool is_modelled = options.link || act::machine() != nullptr;  // waiting costs no CPU
  const auto arena =
      std::make_shared<ThreadArena>(world_size, is_modelled ? Cores::shared : Cores::own);
  const std::uint32_t audit_group =
      audit::is_on() ? audit::register_group(audit::new_group_name(), world_size) : 0;
  std::vector<std::unique_ptr<Communicator>> group;
  for (int rank = 0; rank < world_size; ++rank) {
    group.push_back(make_plan_communicator(std::make_unique<ThreadTransport>(arena, rank),
                                           make_links(rank, options)));
    group.back()->set_timeout_seconds(options.timeout_seconds);
    group.back()->set_default_plan(options.default_plan);
    group.back()->set_audit_group(audit_group);
  }
  return group;
}

}  // namespace lockstep::comm
