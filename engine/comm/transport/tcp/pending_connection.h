// A connection whose ends do not know each other yet: one that came from somebody, or one that is
// made to a lower rank.
#pragma once

#include <vector>

#include "engine/comm/store/socket.h"
#include "engine/comm/transport/tcp/greeting.h"
#include "engine/comm/transport/tcp/rank_address.h"

namespace lockstep::comm {

struct PendingConnection {
  // One that came.
  PendingConnection(const Identity& identity, Socket connection)
      : socket(std::move(connection)), greeting(identity, Greeting::Side::accepts) {}
  // One that is to be made.
  PendingConnection(const Identity& identity, int rank, RankAddress where)
      : greeting(identity, Greeting::Side::connects), expected(rank), address(std::move(where)) {}

  // Takes what has come and answers it, until the other end is known or gone.
  void receive();
  void send_output();

  Socket socket;
  Greeting greeting;
  runtime::Clock::time_point since = runtime::Clock::now();
  int expected = -1;    // the rank that is connected to
  RankAddress address;  // of that rank
  std::vector<std::byte> input;
  bool is_gone = false;
  bool is_cut = false;  // and may be made again
};

}  // namespace lockstep::comm
