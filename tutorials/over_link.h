// Ranks as threads behind a modelled link, and how long they take: for the tutorials that compare
// ways to communicate. A link is "50us,1GB/s" (comm/link.h); tensors are on the
// CPU.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/trace/breakdown.h"

namespace lockstep::tutorial {

struct AllReduceTime {
  double seconds = 0;       // until every rank has the sum: the fastest of ten runs
  double sent_buffers = 0;  // by the busiest rank in one run, as the communicators counted them
};

// Every rank calls all_reduce with a float32 buffer.
// Throws Error{Numeric} when a rank then holds anything but the sum.
AllReduceTime time_all_reduce(
    const std::string& link, int num_ranks, std::size_t num_elements,
    const std::function<void(comm::Communicator&, const Tensor&)>& all_reduce);

struct StepTime {
  trace::StepBreakdown step;        // the fastest one of rank 0
  std::size_t num_all_reduces = 0;  // of rank 0, in one step
};

// Several ways to train, as every rank does it; each records a span of category step for each of
// its steps. They take turns, and of each the fastest step counts: the one that other programs on
// this machine disturbed least. On a busy machine that takes many turns: more are taken, for some
// seconds, until is_settled says that the times can be right.
using Way = std::function<void(comm::Communicator&)>;
using Times = std::vector<StepTime>;
Times time_steps(
    const std::string& link, int num_ranks, const std::vector<Way>& ways,
    const std::function<bool(const Times&)>& is_settled = [](const Times&) { return true; });

// What the link alone takes for all-reduces of so many bytes together between two ranks: for each
// call a latency to compare what was called, and one for each of two steps.
double link_seconds(const std::string& link, double num_bytes, int num_calls);

// How many times as fast the second way's step is.
double gain(const StepTime& slow, const StepTime& fast);

// A table: all-reduces, the step, and its communication, exposed or overlapped.
void print_times(const std::vector<const char*>& names, const Times& times);

}  // namespace lockstep::tutorial
