// Flows that end in whatever their thread does next: gradients that have been all-reduced wait here
// until the optimizer, which knows nothing of ranks, uses them.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::trace {

// Leaves a flow to the calling thread's next take_deferred_flows(). Does nothing while nothing
// records. At most kMaxDeferredFlows wait; the oldest are forgotten first.
void defer_flow(std::uint64_t flow);
inline constexpr std::size_t kMaxDeferredFlows = 1024;

// The flows left to this thread, which then has none.
std::vector<std::uint64_t> take_deferred_flows();

}  // namespace lockstep::trace
