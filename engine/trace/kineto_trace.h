// One rank's part of a recording as a trace of PyTorch's profiler (Kineto), so that tools made for
// those read it: Holistic Trace Analysis (HTA), TensorBoard's profiler, Perfetto. One file a rank.
//
// How spans become Kineto's categories. The host side, one thread per OS thread, spans nested:
//   step            user_annotation "ProfilerStep#<sequence>"
//   op              cpu_op
//   anything else   user_annotation, under its name
// The device side stands for the logical device (process = rank, thread = stream). Each lane's
// innermost spans are written there once more, tied to the host's by "correlation":
//   compute lane    kernel, on stream 7
//   copy lane       gpu_memcpy "Memcpy DtoD (<name>)", on stream 15
//   comm lane       kernel "ncclKernel_<name>", on stream 20: these tools know communication only
//                   by that prefix. No NCCL need be involved; distributedInfo.backend tells
// Where two threads used a lane at once, the next stream number takes what overlaps.
// Flows are left out: Kineto's own mean something else (a launch and its kernel).
//
// Source: pytorch/kineto, libkineto/src/output_json.cpp; HTA's hta/common/trace_file.py (it finds
// the rank by the text `"rank": N`) and hta/utils/utils.py (names of communication and copy
// kernels).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/trace/recorder.h"

namespace lockstep::trace {

struct KinetoOptions {
  std::size_t world_size = 1;
  std::string backend = "lockstep";            // who does the collectives: lockstep, nccl, mpi
  std::string device_name = "logical device";  // deviceProperties[0].name
  // What ts counts from, on the steady clock; the earliest span of the whole recording when empty.
  std::optional<std::int64_t> origin_ns = {};
};

// Writes the spans of `rank`.
void write_kineto_trace(std::ostream& out, const Recording& recording, int rank,
                        const KinetoOptions& options = {});

// Writes one file per rank that has spans: "out.json" becomes "out.rank0.json", "out.rank1.json"
// ... Returns their paths. Throws Error{Io} when one cannot be written.
std::vector<std::filesystem::path> save_kineto_traces(const std::filesystem::path& path,
                                                      const Recording& recording,
                                                      const KinetoOptions& options = {});

}  // namespace lockstep::trace
