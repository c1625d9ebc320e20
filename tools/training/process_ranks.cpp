#include "tools/training/process_ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "engine/comm/host_identity.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/trace/counters.h"
#include "tools/report/core_use.h"
#include "tools/report/packed_recording.h"
#include "tools/training/busy_fraction.h"
#include "tools/training/ddp_rank.h"

namespace lockstep::tools {
namespace {

// What one rank says of itself at the end.
nlohmann::json summarize(const RankJob& job, double cpu_seconds) {
  runtime::LogicalDevice& device = runtime::logical_device(job.device);
  const std::string host = comm::host_identity();
  const auto gpu = static_cast<std::size_t>(std::max(0, device.gpu()));
  const bool is_on_gpu = device.gpu() != runtime::kNoGpu;
  return {{"host", host},
          {"physical_device", is_on_gpu ? runtime::physical_gpus().at(gpu).uuid : host},
          {"device_index", job.device.index},
          {"peak_bytes", device.memory().statistics().peak_bytes},
          {"comm_bytes", trace::collective_bytes_of(job.rank())},
          {"cpu_seconds", cpu_seconds},
          {"common_moment_ns", trace::now_ns()}};
}

// Puts the spans of a rank on another host onto rank 0's clock.
void shift(trace::Recording& recording, std::int64_t difference_ns) {
  for (trace::Span& span : recording.spans) {
    span.begin_ns += difference_ns;
    span.end_ns += difference_ns;
  }
  for (trace::FlowPoint& point : recording.flows) point.time_ns += difference_ns;
}

trace::Recording put_together(const std::vector<nlohmann::json>& summaries,
                              const std::vector<std::string>& packed) {
  std::vector<trace::Recording> recordings;
  for (std::size_t rank = 0; rank < packed.size(); ++rank) {
    recordings.push_back(unpack_recording(packed[rank]));
    if (summaries[rank]["host"] == summaries[0]["host"]) continue;
    shift(recordings.back(), summaries[0]["common_moment_ns"].get<std::int64_t>() -
                                 summaries[rank]["common_moment_ns"].get<std::int64_t>());
  }
  return merge_recordings(std::move(recordings));
}

void take_summaries(const std::vector<nlohmann::json>& summaries, const TrainingTask& task,
                    DeviceType type, JobResult& job) {
  std::set<std::string> physical;
  for (const nlohmann::json& summary : summaries) {
    physical.insert(summary["physical_device"].get<std::string>());
    job.devices.push_back({type, summary["device_index"].get<int>()});
    job.result.peak_bytes.push_back(summary["peak_bytes"]);
    const bool is_peer_here = &summary != &summaries[0] && summary["host"] == summaries[0]["host"];
    if (is_peer_here) job.cpu_seconds_of_peers += summary["cpu_seconds"].get<double>();
    job.result.comm_bytes_per_step = std::max(
        job.result.comm_bytes_per_step, summary["comm_bytes"].get<std::size_t>() / task.num_steps);
  }
  if (job.result.findings) {
    std::size_t& peak_bytes = job.result.peak_bytes[0];
    peak_bytes = std::max(peak_bytes, job.result.findings->peak_bytes_before[0]);
  }
  job.num_physical_devices = physical.size();
}

}  // namespace

JobResult train_in_job(const TrainingTask& task, RankJob& job, const TrainingObserver& observer) {
  runtime::logical_device(job.device).memory().reset_peak();
  trace::reset_collective_counts();
  const double cpu_seconds_before = own_use().cpu_seconds;
  JobResult result;
  result.result.num_steps = task.num_steps;
  train_ddp_rank(task, job.device, job.communicator, observer, result.result);
  runtime::record_device_spans();
  trace::stop();
  wait_for_all_ranks(job, "trained");
  const std::string mine = summarize(job, own_use().cpu_seconds - cpu_seconds_before).dump();
  const trace::Recording recorded = trace::collect();
  const auto texts = gather_at_rank_zero(job, "summary", mine);
  const auto packed = gather_at_rank_zero(job, "recording", pack_recording(recorded));
  if (!job.is_first()) return {};
  std::vector<nlohmann::json> summaries;
  for (const std::string& text : texts) summaries.push_back(nlohmann::json::parse(text));
  take_summaries(summaries, task, job.device.type, result);
  result.recording = put_together(summaries, packed);
  std::vector<int> tracks(texts.size());
  std::iota(tracks.begin(), tracks.end(), 0);
  take_times(result.recording, tracks, result.result);
  return result;
}

}  // namespace lockstep::tools
