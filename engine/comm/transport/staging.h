// Memory that a rank posts messages from (Transport::staging): two blocks, used in turn.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/comm/transport/announcement.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm {

class Staging {
 public:
  // The next block, when wait_sent(to, ticket) has returned for all that was posted from it.
  template <typename WaitSent>
  std::byte* next(std::size_t num_bytes, const WaitSent& wait_sent) {
    turn_ = 1 - turn_;
    Block& block = blocks_[turn_];
    for (const auto& [to, ticket] : block.posted) wait_sent(to, ticket);
    block.posted.clear();
    const std::size_t num_lines = (num_bytes + kCacheLine - 1) / kCacheLine;
    if (block.memory.size() < num_lines) block.memory.resize(num_lines);
    return block.memory.data()->bytes;
  }
  // A message was posted from the block that was returned last.
  void add_posted(int to, Ticket ticket) { blocks_[turn_].posted.emplace_back(to, ticket); }

 private:
  struct Block {
    std::vector<CacheLine> memory;
    std::vector<std::pair<int, Ticket>> posted;
  };

  std::array<Block, 2> blocks_;
  std::size_t turn_ = 0;
};

}  // namespace lockstep::comm
