// Where a rank listens for others, as it says so in the store.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::comm {

struct RankAddress {
  std::uint16_t port = 0;
  int world_size = 0;  // that the rank believes in
  std::string host;
};

// "port world_size nonce host"; the nonce makes the entries of two processes differ.
std::string entry_of(const RankAddress& address);
// Throws Error{Comm} for anything else.
RankAddress address_in(const std::string& entry);

}  // namespace lockstep::comm
