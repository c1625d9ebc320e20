#include "engine/comm/transport/shm/layout.h"

#include <algorithm>
#include <bit>

namespace lockstep::comm::shm {
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

Layout::Layout(int world_size)
    : num_ranks_(static_cast<std::size_t>(world_size)), slot_bytes_(slot_bytes_for(num_ranks_)) {
  constexpr std::size_t kPage = 4096;
  const std::size_t num_channels = 2 * num_ranks_ * num_ranks_;
  members_at_ = round_up(sizeof(Failure), kCacheLine);
  channels_at_ = round_up(members_at_ + num_ranks_ * sizeof(Member), kPage);
  slots_at_ = round_up(channels_at_ + num_channels * sizeof(Channel), kPage);
  num_bytes_ = round_up(slots_at_ + num_channels * kMaxOpenMessages * slot_bytes_, kPage);
}

Failure& Layout::failure(std::byte* segment) const {
  return *reinterpret_cast<Failure*>(segment);
}

Member& Layout::member(std::byte* segment, int rank) const {
  return reinterpret_cast<Member*>(segment + members_at_)[rank];
}

Channel& Layout::channel(std::byte* segment, Use use, int from, int to) const {
  return reinterpret_cast<Channel*>(segment + channels_at_)[index(use, from, to)];
}

std::byte* Layout::slot(std::byte* segment, Use use, int from, int to, Ticket number) const {
  const std::size_t turn = (number - 1) % kMaxOpenMessages;
  return segment + slots_at_ + (index(use, from, to) * kMaxOpenMessages + turn) * slot_bytes_;
}

}  // namespace lockstep::comm::shm
