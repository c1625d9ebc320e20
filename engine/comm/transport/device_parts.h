// What the ranks of one process bring to a collective on devices: each puts down what it was called
// with, and rank 0's thread enqueues the work for all of them (grouped/device_group.h).
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/comm/grouped/device_group.h"

namespace lockstep::comm {

class DeviceParts {
 public:
  explicit DeviceParts(int world_size) : parts_(static_cast<std::size_t>(world_size)) {}

  // Before the rank announces the call: its tensors, and the stream that the work is put on.
  void put_down(int rank, std::uint64_t sequence, GroupMember part) {
    part_of(rank, sequence) = std::move(part);
  }
  // By rank 0 only, when all ranks have announced this call.
  void enqueue(const CallHeader& call) {
    members_.clear();
    for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
      members_.push_back(part_of(static_cast<int>(rank), call.sequence));
    }
    group_.enqueue(call, members_);
    members_.clear();
  }
  // When the work is enqueued, or never will be: the rank lets go of its tensors.
  void take_back(int rank, std::uint64_t sequence) { part_of(rank, sequence) = {}; }

 private:
  // Two, used in turn: a rank may put down its next call while rank 0 has this one in hand.
  GroupMember& part_of(int rank, std::uint64_t sequence) {
    return parts_[static_cast<std::size_t>(rank)][sequence % 2];
  }

  std::vector<std::array<GroupMember, 2>> parts_;
  std::vector<GroupMember> members_;
  DeviceGroup group_;
};

// A message between two ranks of one process that stays on the device.
struct DeviceLetter {
  Tensor data;  // a copy that belongs to the letter
  std::shared_ptr<runtime::Event> written;
};

}  // namespace lockstep::comm
