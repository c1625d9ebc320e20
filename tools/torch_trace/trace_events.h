// Streams the events of a Chrome trace that torch.profiler wrote: a file of any size needs a buffer
// and one event of memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::tools {

// A complete event (ph "X"). Members that the file doesn't give stay as they are here.
struct TraceEvent {
  std::string category;  // "cpu_op", "kernel", "user_annotation"
  std::string name;
  std::int64_t thread = 0;  // a kernel's: its stream
  double begin = 0;         // seconds
  double seconds = 0;
  // Of its "args":
  std::uint64_t correlation = 0;  // joins a kernel to the call that launched it
  std::string collective;         // "allreduce"
  std::string dtype;              // "Float", or the first of "Input type"
  double in_elements = 0;         // "In msg nelems"
  double out_elements = 0;
  double input_elements = 0;  // the product of "Input Dims", summed over the tensors
  double group_size = 0;
};

// The file's other fields.
struct TraceHead {
  std::string backend;  // of "distributedInfo"; empty without torch.distributed
  std::int64_t rank = -1;
  std::int64_t world_size = 1;
  std::string gpu;             // the first device's name
  std::size_t num_events = 0;  // complete events
};

// Calls `use` with each complete event, in the file's order, and returns the rest of the file.
// The file may be compressed with gzip.
// Throws Error{Io} for a file that cannot be read, is cut off, is not JSON, or is no trace.
TraceHead read_trace_events(const std::string& path,
                            const std::function<void(const TraceEvent&)>& use);

// True for a file that is packed, or whose first megabyte has "traceEvents" and a word of
// torch.profiler's, which Lockstep's own timelines lack. False for one that cannot be read.
bool is_trace_file(const std::string& path);

}  // namespace lockstep::tools
