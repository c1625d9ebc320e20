#include "engine/comm/transport/thread/hub.h"

#include "engine/comm/absent_rank.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::comm {

Hub::Hub(int world_size, Cores cores)
    : world_size_(world_size),
      num_spins_(cores == Cores::shared ||
                         static_cast<std::size_t>(world_size) > runtime::num_cores()
                     ? runtime::kSpinRoundsOnSharedCore
                     : runtime::kSpinRounds),
      ranks_(static_cast<std::size_t>(world_size)),
      channels_(ranks_.size() * ranks_.size()),
      mailboxes_(ranks_.size() * ranks_.size()),
      device_parts_(world_size) {}

void Hub::ring_all() {
  for (RankState& state : ranks_) state.doorbell.add(1);
}

std::string Hub::describe_missing(std::uint64_t sequence) const {
  std::string text;
  for (int r = 0; r < world_size_; ++r) {
    const Announcements& announced = rank(r).announced;
    if (!announced.has_reached(sequence)) add_to_list(text, missing_rank(r, announced.last()));
  }
  return text;
}

}  // namespace lockstep::comm
