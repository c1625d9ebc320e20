#include "engine/comm/transport/thread/hub.h"

#include <fmt/format.h>

#include "engine/runtime/logical_device.h"

namespace lockstep::comm {

Hub::Hub(int world_size, Cores cores)
    : world_size_(world_size),
      is_oversubscribed_(cores == Cores::shared ||
                         static_cast<std::size_t>(world_size) > runtime::num_cores()),
      ranks_(static_cast<std::size_t>(world_size)),
      channels_(ranks_.size() * ranks_.size()),
      mailboxes_(ranks_.size() * ranks_.size()),
      device_meeting_(world_size) {}

void Hub::ring_all() {
  for (RankState& state : ranks_) state.doorbell.add(1);
}

void Hub::fail(const Error& error) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_.emplace(error);
    has_failed_.store(true, std::memory_order_seq_cst);
  }
  ring_all();
}

void Hub::throw_failure() const {
  const std::lock_guard lock(failure_mutex_);
  throw Error(*failure_);
}

std::string Hub::describe_missing(std::uint64_t sequence) const {
  std::string text;
  for (int r = 0; r < world_size_; ++r) {
    const auto& announced = rank(r).announced;
    const Announcement& last = announced[announced[0].number() < announced[1].number() ? 1 : 0];
    if (last.number() > sequence) continue;
    const std::string call = last.number() == 0 ? "nothing" : to_string(last.call());
    text +=
        fmt::format("{}rank {} is missing (its last call: {})", text.empty() ? "" : ", ", r, call);
  }
  return text;
}

}  // namespace lockstep::comm
