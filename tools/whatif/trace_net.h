// A net as one rank's trace of torch.profiler shows it: `lockstep predict --from-trace`.
#pragma once

#include <string>

#include "tools/torch_trace/breakdown.h"
#include "tools/whatif/net.h"

namespace lockstep::tools {

struct TraceNet {
  Net net;                         // its shapes: one for each bucket of gradients, with its work
  double smallest_bucket_mib = 0;  // 0 without buckets
};

// The step on one device of the kind is the trace's mean step without exposed communication. If the
// trace's GPU is one of a preset's, its computation is scaled by both peaks (peak_flops()); of
// another, or on the CPU, it stays as it is: Net::source says which.
// Gradients are the all-reduces and reduce-scatters of the last step, in their order. Computation
// between two of them is the layers' of the second; a third of all before the last is forward.
// Without any (one GPU's trace) parameters and shapes stay empty.
// Throws Error{Io} if the trace lacks the messages' sizes.
TraceNet net_of_trace(const RankBreakdown& rank, const predict::DeviceProfile& device,
                      Precision precision);

}  // namespace lockstep::tools
