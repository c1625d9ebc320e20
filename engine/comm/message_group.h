// A group of ranks that exchange messages: the plans of PlanRunner over a Transport.
#pragma once

#include <memory>
#include <optional>

#include "engine/comm/group.h"
#include "engine/comm/transport.h"

namespace lockstep::comm {

class MessageGroup final : public Group {
 public:
  // links: modelled ones; may be none. All ranks of the group give the same.
  explicit MessageGroup(std::unique_ptr<Transport> transport,
                        std::unique_ptr<LinkModel> links = nullptr);

  void note_call(const CallHeader& call) override;
  void announce(const CollectiveCall& call) override;
  CallHeader announced_by(int peer) override { return transport_->announced_by(peer); }
  std::size_t run(const CollectiveCall& call, std::span<void* const> memory) override;
  void abandon(const Error& error) noexcept override;

  void send(const CollectiveCall& call) override;
  void receive(const CollectiveCall& call) override;

  void fail(const Error& error) noexcept override { transport_->fail(error); }
  void throw_if_failed() const override { transport_->throw_if_failed(); }
  std::string describe_missing(std::uint64_t sequence) const override {
    return transport_->describe_missing(sequence);
  }

 private:
  void run_schedule(const RankSchedule& schedule, TensorView buffer, const Reduction& reduction);
  void run_step(const RankSchedule::Step& step, TensorView buffer, const Reduction& reduction);
  const std::byte* sent_data(const RankSchedule::Step& step, TensorView buffer);
  void receive_piece(const plan::Write& write, TensorView mine, const Reduction& reduction);

  std::unique_ptr<Transport> transport_;
  PlanRunner runner_;
  std::optional<LinkClock> clock_;  // of modelled links
  std::vector<std::byte> scratch_;  // kept between calls for its memory
};

}  // namespace lockstep::comm
