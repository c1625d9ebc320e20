// Modelled links: messages between ranks arrive when they would have arrived over links of a stated
// latency and bandwidth. Communication that overlaps with computation then costs no time, as on a
// machine whose network card does the work.
//
// A sender works out when its message would arrive and tells the receiver that time ahead of the
// message. A rank doesn't sleep for every message: the step that uses a message begins, in modelled
// time, at its arrival, and the call sleeps at its end until everything that it received would have
// arrived. Messages to ranks on the same host are not modelled, so they first wait for the modelled
// ones.
//
// A modelled time is a lower bound: computation that holds up the real messages delays them
// further. Times are those of the clock that all processes of one machine share, so ranks on
// different machines cannot use them. Tensors must be on the CPU.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/thread_group.h"
#include "engine/runtime/steady_time.h"

namespace lockstep::comm {

// A link as --link names it: "50us,1GB/s".
struct LinkSpec {
  double latency_seconds = 0;   // from a message's last byte leaving to its arrival
  double bytes_per_second = 0;  // each rank's port, in each direction

  bool operator==(const LinkSpec&) const = default;
};

// Parses "LATENCY,BANDWIDTH": a number with the unit ns, us, ms or s, and a number with the unit
// B/s, KB/s, MB/s, GB/s, Kbit/s, Mbit/s or Gbit/s (powers of 1000).
// Throws Error{Usage} that says what was expected and what was found.
LinkSpec parse_link(std::string_view text);
// The same in the units that give the shortest numbers: "50us,1GB/s".
std::string to_string(const LinkSpec& link);

using runtime::Time;

// One direction of a port: one message at a time goes through it.
class Port {
 public:
  // Takes the first `length` of time at or after `earliest` in which the port is free, and returns
  // its end. Messages need not be given in the order of their times.
  Time occupy(Time earliest, Time length);

 private:
  // Far more messages than are ever under way at once.
  static constexpr std::size_t kMaxIntervals = 256;

  struct Interval {
    Time begin;
    Time end;
  };
  std::vector<Interval> busy_;  // disjoint, in the order of time
  Time forgotten_until_ = Time::min();
};

// When the messages of one rank leave and arrive.
class LinkModel {
 public:
  virtual ~LinkModel() = default;

  virtual std::string description() const = 0;
  // The ranks that the links connect. Other ranks talk without them.
  enum class Between { hosts, all_ranks };
  virtual Between between() const = 0;
  // The modelled host of every rank; empty: the group's own hosts.
  virtual std::span<const int> hosts() const { return {}; }

  // --- a collective ---
  // Tells the model that a call was made; runs in the thread that made it.
  virtual void note_call(const CallHeader&) {}
  // When this rank's part of a call can begin: its data is there.
  virtual Time begin_call(const CallHeader& call) = 0;
  // How long the announcement of a call takes.
  virtual Time latency() const = 0;
  // When the next messages can leave. arrived: when everything received so far has arrived.
  virtual Time begin_step(Time arrived) = 0;
  // When a message that may leave at `ready` would arrive, as far as its sender can tell.
  virtual Time leave(int to, Time ready, std::size_t num_bytes) = 0;
  // The same at its receiver.
  virtual Time arrive(int from, Time arrival, std::size_t num_bytes) = 0;
  // When the call is over.
  virtual Time end_call(Time arrived) { return arrived; }
  virtual void abandon_call() noexcept {}

  // --- one message ---
  virtual Time begin_message(Bytes /*data*/) { return runtime::now(); }
  virtual void end_message(Time /*arrived*/) {}
};

// Every rank has a port, which sends and receives at once (full duplex), one message after the
// other in each direction. A message of B bytes
//   leaves    from the moment its plan step begins, once the port has sent those before it; that
//             takes B / bandwidth;
//   arrives   a latency after its last byte has left, and no sooner than the receiver's port had
//             B / bandwidth for it alone.
// So a message that meets no other takes latency + B / bandwidth, and n messages to one rank take
// n times the bandwidth's part: a rank that all others talk to is a bottleneck. The announcement of
// a call takes the latency too, since ranks compare their calls before data moves.
// If ranks are on several hosts, the links are those between hosts.
// Source: R. Thakur, R. Rabenseifner, W. Gropp, Optimization of Collective Communication Operations
// in MPICH, 2005, section 3: time alpha + n beta, one message per port and direction.
std::unique_ptr<LinkModel> fixed_link(const LinkSpec& link);

// The same rank's side of a group, behind modelled links. All ranks of the group must have them.
std::unique_ptr<Group> behind_links(std::unique_ptr<Group> group, std::unique_ptr<LinkModel> model);

// Puts every rank behind a fixed link; empty without one.
Links fixed_links(const std::optional<LinkSpec>& link);

}  // namespace lockstep::comm
