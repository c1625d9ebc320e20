#include "engine/comm/transport/tcp/rank_address.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/comm/store/token_handshake.h"
#include "engine/core/error.h"

namespace lockstep::comm {
std::string entry_of(const RankAddress& address) {
  return fmt::format("{} {} {} {}", address.port, address.world_size, make_token(), address.host);
}

RankAddress address_in(const std::string& entry) {
  RankAddress address;
  const char* end = entry.data() + entry.size();
  const auto port = std::from_chars(entry.data(), end, address.port);
  const auto size = std::from_chars(std::min(port.ptr + 1, end), end, address.world_size);
  const std::size_t last = entry.rfind(' ');
  require(port.ec == std::errc() && size.ec == std::errc() && last != std::string::npos,
          ErrorCode::Comm, "connect", "the store holds no address of a rank but \"{}\"", entry);
  address.host = entry.substr(last + 1);
  return address;
}

}  // namespace lockstep::comm
