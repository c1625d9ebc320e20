// A link that ranks are to talk over, as a user names it: "50us,1GB/s".
#pragma once

#include <string>
#include <string_view>

namespace lockstep::comm {

struct LinkSpec {
  double latency_seconds = 0;   // from when a message's last byte leaves until it arrives
  double bytes_per_second = 0;  // of each rank's port, in each direction

  bool operator==(const LinkSpec&) const = default;
};

// "LATENCY,BANDWIDTH": a number with the unit ns, us, ms or s, a number with the unit B/s, KB/s,
// MB/s, GB/s, Kbit/s, Mbit/s or Gbit/s (powers of 1000).
// Throws Error{Usage} that says what was expected and what was found.
LinkSpec parse_link(std::string_view text);

// The same in the units that give the shortest numbers: "50us,1GB/s".
std::string to_string(const LinkSpec& link);

}  // namespace lockstep::comm
