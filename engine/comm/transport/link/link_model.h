// What a modelled link does to messages: when they leave and arrive. One rank's end of its links,
// which LinkTransport asks; times are of the clock that all processes of a machine share.
#pragma once

#include <span>
#include <string>

#include "engine/act/modelled_time.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/transport/transport.h"

namespace lockstep::comm {

using act::Time;

class LinkModel {
 public:
  virtual ~LinkModel() = default;

  virtual std::string description() const = 0;
  // Which ranks the links are between. Others talk as without them.
  enum class Between { hosts, all_ranks };
  virtual Between between() const = 0;
  // The hosts of the ranks that are modelled, as Transport::hosts; empty: the transport's own.
  virtual std::span<const int> hosts() const { return {}; }

  // --- a collective ---
  // The call was made; by the thread that made it.
  virtual void note_call(const CallHeader&) {}
  // When this rank's part of a call can begin: what it was called with is there.
  virtual Time begin_call(const CallHeader& call) = 0;
  // Of the announcement of a call.
  virtual Time latency() const = 0;
  // When what comes next can leave. arrived: when all that was taken has arrived.
  virtual Time begin_step(Time arrived) = 0;
  // When a message that may leave at `ready` arrives, as far as this side decides it.
  virtual Time leave(int to, Time ready, std::size_t num_bytes) = 0;
  // The same at its receiver.
  virtual Time arrive(int from, Time arrival, std::size_t num_bytes) = 0;
  // When the call is over.
  virtual Time end_call(Time arrived) = 0;
  virtual void abandon_call() noexcept = 0;

  // --- one message ---
  virtual Time begin_message(Bytes data) = 0;
  virtual void end_message(Time arrived) = 0;
};

}  // namespace lockstep::comm
