// For whom a rank waits, on the status line of a terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/comm/slow_collective_notice.h"
#include "engine/launch/rendezvous.h"

namespace lockstep::tools {

// "waiting for ranks 1, 3 of 4".
std::string waiting_words(const std::vector<int>& missing, int world_size);

// Shows who has not joined the job after two seconds; nothing where there is no terminal.
launch::WaitingNotice show_who_joins_late(int world_size);

// While it lives, who keeps a collective waiting for longer than two seconds is shown.
class ShowLateRanks {
 public:
  ShowLateRanks();

 private:
  std::optional<comm::SlowCollectiveNotice> watch_;  // only where there is a terminal
};

}  // namespace lockstep::tools
