#include "engine/comm/transport/arena/layout.h"

#include <algorithm>
#include <bit>

namespace lockstep::comm::arena {
namespace {

// Of one message between few ranks. Larger ones cost fewer waits and more cache; measured for 2
// ranks, 64 KiB are up to 1.6 times as slow and 256 KiB no faster.
constexpr std::size_t kLargestSlot = std::size_t{128} << 10;
constexpr std::size_t kSmallestSlot = std::size_t{4} << 10;
// Of all slots of a large group, if it used every one of its channels.
constexpr std::size_t kMostSlotBytes = std::size_t{256} << 20;

std::size_t slot_bytes_for(std::size_t num_ranks) {
  const std::size_t fair = kMostSlotBytes / (2 * num_ranks * num_ranks * kMaxOpenMessages);
  return std::clamp(std::bit_floor(fair), kSmallestSlot, kLargestSlot);
}

std::size_t round_up(std::size_t offset, std::size_t granule) {
  return (offset + granule - 1) / granule * granule;
}

}  // namespace

Layout::Layout(int world_size, Messages messages)
    : num_ranks_(static_cast<std::size_t>(world_size)),
      slot_bytes_(messages == Messages::lent ? 0 : slot_bytes_for(num_ranks_)) {
  constexpr std::size_t kPage = 4096;
  const std::size_t num_uses = messages == Messages::lent ? 1 : 2;
  const std::size_t num_channels = num_uses * num_ranks_ * num_ranks_;
  channels_at_ = round_up(kMembersAt + num_ranks_ * sizeof(Member), kPage);
  slots_at_ = round_up(channels_at_ + num_channels * sizeof(Channel), kPage);
  num_bytes_ = round_up(slots_at_ + num_channels * kMaxOpenMessages * slot_bytes_, kPage);
}

}  // namespace lockstep::comm::arena
