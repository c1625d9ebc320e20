// The link that --link names: every rank has a port, which sends and receives at once (full
// duplex), one message after the other in each direction. A message of B bytes
//   leaves    from the moment its plan step begins (begin_step), once the port has sent those
//             before it; that takes B / bandwidth;
//   arrives   a latency after its last byte has left, and no sooner than the receiver's port had
//             B / bandwidth for it alone.
// So a message that meets no other takes latency + B / bandwidth, and n messages to one rank take
// n times the bandwidth's part: a rank that everybody talks to is a bottleneck. The announcement of
// a call takes the latency too, since ranks compare their calls before data moves.
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations
// in MPICH, 2005, section 3: time alpha + n beta, one message per port and direction.
//
// Where ranks are on several hosts, the links are those between hosts. Each rank has a port of its
// own, also to other hosts.
#pragma once

#include "engine/act/port.h"
#include "engine/comm/transport/link/link_model.h"
#include "engine/comm/transport/link/link_spec.h"

namespace lockstep::comm {

class FixedLink final : public LinkModel {
 public:
  explicit FixedLink(const LinkSpec& link);

  std::string description() const override { return to_string(link_); }
  Between between() const override { return Between::hosts; }

  Time begin_call(const CallHeader& call) override;
  Time latency() const override { return latency_; }
  Time begin_step(Time arrived) override;
  Time leave(int to, Time ready, std::size_t num_bytes) override;
  Time arrive(int from, Time arrival, std::size_t num_bytes) override;
  Time end_call(Time arrived) override { return arrived; }
  void abandon_call() noexcept override {}
  Time begin_message(Bytes data) override;
  void end_message(Time) override {}

 private:
  Time time_of(std::size_t num_bytes) const;

  LinkSpec link_;
  Time latency_;
  act::Port egress_;
  act::Port ingress_;
};

}  // namespace lockstep::comm
