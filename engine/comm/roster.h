// The first step of a process group: every rank shows a card, and all get the same list of them.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/process_group.h"

namespace lockstep::comm {

// What a rank says of itself.
struct RankCard {
  std::string protocol;  // kProtocol of its program and its byte order
  int world_size = 0;
  std::string transport;  // to_string(TransportChoice)
  std::string link;       // to_string(LinkSpec), or "none"
  std::string clock;      // boot_id(): processes with the same one share a clock
  int process = 0;
  std::string nonce;  // drawn at random: no two cards are alike
  std::string host;   // host_identity()
};

// The cards of all ranks, by rank. Checked: they speak one protocol, and agree on the world size
// on the transport and on the link, whose modelled times need one clock. Throws as
// make_process_group says.
std::vector<RankCard> exchange_cards(const ProcessGroupOptions& options);

// hosts[r]: 0, 1, ... in the order of the hosts' first ranks.
std::vector<int> number_hosts(const std::vector<RankCard>& cards);

}  // namespace lockstep::comm
