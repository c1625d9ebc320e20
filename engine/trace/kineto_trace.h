// One rank's part of a recording as a trace of PyTorch's profiler (Kineto), so that tools made for
// those read it: Holistic Trace Analysis (HTA), TensorBoard's profiler, Perfetto. One file a rank.
//
// How spans become Kineto's categories. The host side, one thread per OS thread, spans nested:
//   step            user_annotation "ProfilerStep#<sequence>"
//   op              cpu_op
//   a collective    user_annotation "nccl:<name>", by which TensorBoard knows it, with its bytes as
//                   a tensor of bytes. Outside the steps, where TensorBoard wants none: "<name>"
//   anything else   user_annotation, under its name
// The device side stands for the logical device (process = rank, thread = stream). It holds what
// the device did inside the steps, each instant of a thread under its innermost span only
// (innermost.h), so that an op is not at work while it waits for the all-reduce inside it:
//   compute lane    kernel, on stream 7; not where it communicates or waits
//   copy lane       gpu_memcpy "Memcpy DtoD (<name>)", on stream 15
//   comm lane       kernel "ncclKernel_<name>", on stream 20: HTA knows communication only by that
//                   prefix. No NCCL need be involved; distributedInfo.backend tells
// "correlation" ties a piece to its span on the host; what a GPU timed itself, to the host's span
// of the same step. Where two threads used a lane at once, the next stream number takes what
// overlaps. So HTA's overlap of communication and computation, over all steps, is comm_overlap() of
// step_statistics.h. (HTA leaves the last step out unless told include_last_profiler_step=True.)
// Counters ("C": memory in use, bytes in flight) belong to the device's process; Perfetto draws
// them, and the two others pass them over. "clock" says how the rank's times were put onto rank 0's
// clock. Flows are left out: Kineto's own mean something else (a launch and its kernel).
//
// Source: pytorch/kineto, libkineto/src/output_json.cpp; HTA's hta/common/trace_file.py (it finds
// the rank by the text `"rank": N`) and hta/common/types.py (names of communication and copy
// kernels); torch_tb_profiler's consts.py (names of files) and profiler/trace.py (of collectives).
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
  std::string backend = "lockstep";  // who does the collectives: lockstep, nccl, mpi
  // deviceProperties[i].name, by rank; a rank beyond them is "logical device".
  std::vector<std::string> device_names = {};
  // What ts counts from, on the steady clock; the earliest span of the whole recording when empty.
  std::optional<std::int64_t> origin_ns = {};
};

// Writes the spans of `rank`.
void write_kineto_trace(std::ostream& out, const Recording& recording, int rank,
                        const KinetoOptions& options = {});

// Where the file of a rank goes: of "a/out.json" (or "a/out.pt.trace.json") to
// "a/out.rank_<rank>.pt.trace.json". TensorBoard reads files of this ending only, and takes the
// number for that of the process.
std::filesystem::path kineto_path(const std::filesystem::path& path, int rank);

// Writes one file per rank that has spans, and returns their paths. Throws Error{Io} when one
// cannot be written.
std::vector<std::filesystem::path> save_kineto_traces(const std::filesystem::path& path,
                                                      const Recording& recording,
                                                      const KinetoOptions& options = {});

}  // namespace lockstep::trace
