#include "engine/parallel/ddp/join.h"

#include <algorithm>

#include "engine/core/error.h"

namespace lockstep::parallel {

Join::Join(Ddp& ddp, JoinDivisor divisor) : ddp_(ddp), divisor_(divisor) {
  require(!ddp.meet_, ErrorCode::State, "join", "this module is in a join already");
  ddp.meet_ = [this] { return begin_step(); };
}

Join::~Join() {
  ddp_.meet_ = nullptr;
  ddp_.reducer_->set_round(0, 1);
}

Join::Round Join::meet(int mine) {
  Round round;
  std::int64_t most = 0;
  std::int64_t least = 2;
  const std::vector<std::int64_t> all = comm::gather_numbers({mine}, *ddp_.communicator_);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == 0) continue;
    ++round.num_active;
    round.source = static_cast<int>(rank);
    most = std::max(most, all[rank]);
    least = std::min(least, all[rank]);
  }
  require(round.num_active == 0 || most == least, ErrorCode::State, "join",
          "some ranks run this step in no_sync and others do not");
  round.synchronizes = most == 2;
  if (round.num_active > 0) last_source_ = round.source;
  const double world = ddp_.communicator_->world_size();
  const bool by_all = divisor_ == JoinDivisor::world_size || round.num_active == 0;
  ddp_.reducer_->set_round(round.source, by_all ? 1 : world / round.num_active);
  return round;
}

int Join::begin_step() {
  return meet(ddp_.reducer_->is_synchronizing() ? 2 : 1).source;
}

void Join::answer() {
  for (Round round = meet(0); round.num_active > 0; round = meet(0)) {
    if (!round.synchronizes) continue;
    ddp_.broadcast_buffers(round.source);
    ddp_.reducer_->reduce_zeros();
  }
  broadcast_values(*ddp_.module(), *ddp_.communicator_, last_source_);
}

void join(Ddp& ddp, const std::function<void()>& steps, JoinDivisor divisor) {
  Join join(ddp, divisor);
  steps();
  join.answer();
}

}  // namespace lockstep::parallel
